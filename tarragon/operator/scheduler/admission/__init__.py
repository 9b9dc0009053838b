"""Writes what the scheduler decided into the status of jobs, and keeps admissions true to the pods that exist."""
