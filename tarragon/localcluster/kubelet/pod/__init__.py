"""One pod, from admission to its end: launch, status, checkpoints, logs."""
