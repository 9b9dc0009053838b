"""What `tarragon check` finds out: about this machine, or about a cluster."""
