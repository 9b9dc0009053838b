"""The client of a Kubernetes API: a protocol (`port.py`), and what implements it over HTTP. It knows nothing of jobs.

Begin with `port.py`, then `informer/reflector.py`. `informer`, `leader_election` and `middleware` need the port only;
`http` implements it.
"""
