"""The GPUs and other devices of a node, and which container has which."""
