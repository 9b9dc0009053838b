"""The cluster that a command uses, embedded or from a kubeconfig, and what is read from it: logs, completions.

Imports `output`, `options` and `jobview`. Begin with `resolving.py`, then `embedded.py` and `foreign.py`.
"""
