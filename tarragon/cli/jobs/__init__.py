"""Commands on existing jobs: select, list, watch, scale, suspend, resume, delete and describe.

Begin reading with `editing`, which applies a change to several jobs. May import `jobview`, `manifest`, `targets`,
`report`, `options` and `output`, but not `commands`.
"""
