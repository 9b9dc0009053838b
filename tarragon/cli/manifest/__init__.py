"""Submitting a FILE: reading it, overrides, checks against this machine and the cluster, dry runs, comparison.

Imports `output`, `options`, `jobview` and `targets`. Begin with `loading.py` (from FILE to objects), then
`submission.py` (from objects to the cluster).
"""
