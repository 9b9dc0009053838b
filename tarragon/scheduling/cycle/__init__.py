"""One scheduling cycle: its working state, what preemption and shrinking would free, and checks of its decisions."""
