"""HTTP for the API server: request bodies and queries, responses, watches, and streaming sessions.

Begin with `resources`; `streaming` serves exec, attach and port-forward.
"""
