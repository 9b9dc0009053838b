"""The pod garbage collector."""
