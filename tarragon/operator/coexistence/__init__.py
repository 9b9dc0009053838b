"""Detects other training operators in the cluster that manage the same kinds of jobs."""
