"""Access to running containers: exec, attach, copy and port-forward."""
