"""One job as people see it: its name, state, progress, replicas, events and exit code."""
