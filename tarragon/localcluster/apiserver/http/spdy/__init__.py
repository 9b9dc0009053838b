"""SPDY/3.1, as far as exec, attach and port-forward need it: no maintained library implements it.

Two clients need it today. `kubectl port-forward` tunnels SPDY frames through a WebSocket. And a kube-apiserver of 1.30
or newer translates the WebSockets of its clients into SPDY on the way to a node, so that the port of a `tarragon node`
is asked for SPDY by every current cluster.
"""
