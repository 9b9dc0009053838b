"""Builds the scheduler's snapshot from the caches: nodes, gangs, their requests and their eligible nodes."""
