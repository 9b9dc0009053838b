"""What `tarragon simulate` reads from a context, and how it shows what it found.

Begin reading with `figures`. May import `targets`, `jobview`, `options` and `output`, but not `commands`.
"""
