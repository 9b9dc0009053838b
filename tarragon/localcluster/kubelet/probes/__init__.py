"""Liveness, readiness and startup probes, lifecycle hooks, and the container actions that follow from them."""
