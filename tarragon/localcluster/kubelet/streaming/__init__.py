"""Commands in running containers: exec, attach, copy and port-forward."""
