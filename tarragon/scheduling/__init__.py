"""Which gang runs, where and with how many workers: a snapshot in, decisions out. Pure; it knows nothing of Kubernetes.

The floors, from the ground up: `api` (what goes in and what comes out), `state` (what is free), `placement` (which
nodes), `explain` (why not), `cycle` (one scheduling cycle), `actions` (what a policy composes), `policies`. Each
imports only those before it. Begin with `policies/dragon.py`.
"""
