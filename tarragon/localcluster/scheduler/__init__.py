"""Binds pods to nodes, one at a time."""
