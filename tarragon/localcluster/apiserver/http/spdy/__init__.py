"""SPDY/3.1, as far as Kubernetes' exec, attach and port-forward need it: no maintained library has it."""
