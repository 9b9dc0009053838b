"""Readers of workload traces. `reading.py` chooses the reader by the header of the file."""
