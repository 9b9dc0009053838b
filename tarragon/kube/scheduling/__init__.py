"""The rules of kube-scheduler about one pod and one node, for the gang scheduler and for the embedded cluster. Pure.

What pods request (`pod_requests`, `host_ports`) and nodes offer (`node_resources`), which nodes a pod accepts
(`node_affinity`, `taints`), and which other pods its affinity and spread constraints select (`affinity_terms`, decoded
by `affinity`); and which pods request no CPUs and share a machine's (`cpu_peers`). Imports the rest of `kube`, which
does not import it. Begin with `pod_requests.py`. The cases of `tests/kube/scheduling/kubernetes_cases.py` are compared
with a real kube-scheduler.
"""
