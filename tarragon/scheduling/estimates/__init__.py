"""Estimates the work of gangs from what was observed: the job's own history, and that of others of its kind."""
