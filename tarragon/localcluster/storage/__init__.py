"""Storage of objects: an SQLite file, the history that watches read, and label and field selectors.

Begin reading with `store.py`; `database.py` is the file, `watch_cache.py` the objects and changes in memory.
"""
