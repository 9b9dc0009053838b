"""Structural schemas of custom resources and field errors, and the names and quantities that they check."""
