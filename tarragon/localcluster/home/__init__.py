"""The folder of the cluster on this machine: its certificate authority, and who serves it now."""
