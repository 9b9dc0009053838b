"""Following a job until it ends: its progress on the terminal, the logs of its replicas, and the exit code.

Imports `output`, `options`, `jobview`, `targets`, `manifest` and `report`. Begin with `attending.py` (`run`)
and `awaiting.py` (`wait`).
"""
