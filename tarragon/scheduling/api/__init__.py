"""The types of the scheduler: what a policy is given and what it returns."""
