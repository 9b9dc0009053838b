"""Services: controllers of Endpoints and EndpointSlices, and the proxy that forwards connections to pods.

Begin reading with `endpoints.py`, then `proxy.py`.
"""
