"""SharePod of KubeShare 1: one pod that may share a GPU, run without KubeShare as a gang of one replica.

Begin with `framework.py`, which has the Framework value. `manifest.py` reads a SharePod, `pod_end.py` says when its pod
has ended, `mirror.py` shows that pod in the status, `crd.py` defines the kind. What it shares with the kinds of
kubeflow.org is in `kubeflow`.
"""
