"""Reports about one job: what it waits for, how it ended, why it failed, and what to do.

Imports `output` and `jobview`. Begin with `ending.py` (finished jobs) and `wait_report.py` (waiting jobs).
"""
