"""Computes the job's status (phase, conditions, counts) from its pods and limits, and the patch that writes it.

Begin with `outcome.py`, the table of rules; `patch.py` writes the result.
"""
