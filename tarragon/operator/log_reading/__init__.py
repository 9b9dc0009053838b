"""Reads the progress of programs that print it from the logs of their pods, within bounds.

Modules, lowest first: `log_window` (which lines of a log are new), `log_reader` (which logs are read, and when). Begin
with `log_reader.py`; what a line means is in `job/log_progress.py`.
"""
