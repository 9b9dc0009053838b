"""The default scheduler of the embedded cluster. Begin reading with `scheduler.py`."""
