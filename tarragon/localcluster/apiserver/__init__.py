"""The API server: the embedded Kubernetes API over HTTP.

Begin with `apiserver`, then `http/resources`. It may import `auth`, `registry`, and what is below them.
"""
