"""Simulates a scheduler over a workload of training jobs, in virtual time. Begin reading in `engine.py`.

The operator's own policies decide (`policy_scheduler.py`): what is simulated is the code that a cluster runs. Other
schedulers need `engine.Scheduler` only.
"""
