"""The server process of the cluster: certificates, kubeconfig, nodes, start and stop.

Begin reading with `cluster.py`, which starts all parts. `serving.py` is the process around it; clients start and stop
that process with `background.py`.
"""
