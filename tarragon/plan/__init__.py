"""Decides what to do about one job: takes the observed and the desired state, returns actions and a status. Pure.

The sub-packages, bottom up: `nodes` (placement rules), `input` (manifests and older API versions),
`config` (the queue file and the published configuration), `objects` (the pods and services that a job should have),
`view` (the observed state of the job), `lifecycle` (lost and restarted pods), `status`, `reconcile`. Each imports only
those before it. Begin with `reconcile/decide.py`.
"""
