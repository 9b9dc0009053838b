"""Builds the objects that a job should have: pods and services with placement, logs, accelerators, pod groups."""
