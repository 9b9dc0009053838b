"""The gang scheduler: policies decide from a snapshot which gangs run, on which nodes and at which size.

The package is pure and does not know Kubernetes. Its sub-packages, from the bottom up: `api` (a policy's input and
output), `estimates` (how much work a job is), `state` (free capacity), `placement` (node selection), `explain` (why a
gang waits), `cycle` (one scheduling cycle), `actions` (the steps of a policy) and `policies`. Each imports only from
those before it. Start reading at `policies/dragon.py`.
"""
