"""The scheduler's rules: read again when their file changes, and published for `tarragon why`."""
