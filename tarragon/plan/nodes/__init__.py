"""What replicas request and which nodes they may use: feasibility, topology between pods, preferences, storage.

The rules for one pod and one node are in `kube/scheduling`. Begin with `feasibility.py` and `replica_requests.py`.
"""
