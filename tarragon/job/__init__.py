"""The framework-independent model of a training job, its status and its conditions.

Begin with `model.py`, then `status.py` and `phase.py`.
"""
