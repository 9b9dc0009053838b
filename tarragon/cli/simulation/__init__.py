"""What `tarragon simulate` shows: tables, CSV and a progress bar. Begin reading with `figures`.

May import `options` and `output`, but not `commands`.
"""
