"""One job as users see it: its name, state, progress, replicas, logs, events and exit code.

Imports `output` and `options` of the command line. Begin with `jobs.py` (finding and reading a job), then `progress.py`
(its state and that of every replica), then `follower.py` (watching it until it ends).
"""
