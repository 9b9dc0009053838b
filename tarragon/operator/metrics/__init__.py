"""Prometheus metrics: their definitions, the registry, and the job metrics."""
