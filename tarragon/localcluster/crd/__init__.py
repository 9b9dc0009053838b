"""Custom resource definitions."""
