"""The node object: its capacity, conditions and lease."""
