"""The options of `tarragon operator` and `tarragon up`, and their conversion to the operator's settings."""
