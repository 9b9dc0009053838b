"""One pod, from admission to removal: launch, status, checkpoints, logs."""
