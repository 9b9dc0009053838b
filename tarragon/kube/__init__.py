"""Typed slices of Kubernetes: what we read of its objects, and the rules of its API that are pure."""
