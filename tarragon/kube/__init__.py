"""Kubernetes objects, for everything above that reads or writes them. Pure.

Partial types (`meta`, `core`, `event`), selectors, patches, JSON and YAML, the validation of pod templates, and
`scheduling`: the rules of kube-scheduler. Imports only `base`. Begin with `meta.py` and `core.py`.
"""
