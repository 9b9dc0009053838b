"""The Kubernetes client: a protocol (`port.py`) and its implementation over HTTP. It knows nothing about jobs.

Begin with `port.py`, then read `informer/informer.py`. `informer`, `leader_election` and `middleware` depend only on
the protocol; `http` implements it. `workqueue` and `wakeup` are what controllers are built from.
"""
