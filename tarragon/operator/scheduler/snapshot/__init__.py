"""Builds the scheduler's snapshot from the caches: nodes, gangs, their demands and who may go where."""
