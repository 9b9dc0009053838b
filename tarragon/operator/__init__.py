"""Runs in the cluster: watches jobs and pods, decides with `plan` and `scheduling`, and writes what they decided.

The floors, from the ground up: `queue` (keys to reconcile, and when), `informers` (what is known of the cluster),
`metrics`, `scheduler` (gangs are admitted here), `reconciler` (one job at a time), `coexistence` (other operators),
`manager` (the process). Each imports only those before it. Begin with `manager/operator.py`.
"""
