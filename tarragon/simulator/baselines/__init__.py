"""Schedulers to compare with: what Kubernetes does without gangs, and what the literature proposes.

They exist in the simulator only: some are wrong on purpose (`kube_scheduler.py`, `dragon_as_coded.py`), others need
what no cluster knows, such as the length of each job. `names.py` lists them; `registry.py` makes them.
"""
