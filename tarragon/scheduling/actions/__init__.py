"""The steps that policies are composed of: order the queue, restore, reserve, preempt, grow."""
