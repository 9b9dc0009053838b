"""The GPUs and other accelerators of a node, and their allocation to containers."""
