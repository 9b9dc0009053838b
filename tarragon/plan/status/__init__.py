"""The job's status: phase and conditions from its pods, limits, stalls, and the patch that writes it."""
