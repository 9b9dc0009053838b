"""Converts MPIJobs from any generation of the API to any other, and reports everything that is lost.

Begin with `convert.py`; what is not about MPI is in `kubeflow.conversion`.
"""

from __future__ import annotations
