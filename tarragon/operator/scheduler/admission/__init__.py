"""Writes the scheduler's decisions to job status, and keeps admissions consistent with the pods that exist."""
