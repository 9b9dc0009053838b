"""The operator process: settings, leader election, start and shutdown, health.

Begin with `process.py`, then `operator.py`.
"""
