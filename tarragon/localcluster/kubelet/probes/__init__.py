"""Liveness, readiness and startup probes, lifecycle hooks, and what follows from their results."""
