"""The observed state of one job (its pods, services and nodes beside its spec) and the actions that change it."""
