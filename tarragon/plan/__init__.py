"""Decides what is to be done about one job: what exists and what is asked for in, actions and a status out. Pure.

The floors, from the ground up: `nodes` (what nodes offer and what pods may go there), `input` (manifests and older
API versions), `config` (what is published for others), `objects` (the pods and services that a job should have),
`view` (the job as it is), `lifecycle` (losing and restarting pods), `status`, `reconcile`. Each imports only those
before it. Begin with `reconcile/decide.py`.
"""
