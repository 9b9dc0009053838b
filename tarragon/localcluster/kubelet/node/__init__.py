"""The Node object: its capacity, conditions and lease."""
