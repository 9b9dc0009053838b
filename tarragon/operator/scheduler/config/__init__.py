"""The scheduler's configuration: reloads the rules when their file changes, and publishes them for `tarragon why`."""
