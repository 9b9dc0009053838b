"""An embedded Kubernetes: the API, controllers, scheduler and kubelet of a cluster on one machine, in one process.

The floors, from the ground up: `schema`, `kinds` and `api` (what exists and what can be asked), `storage`, `crd`,
`validation`, `tables`, `apply` and `admission`, `home` (files on this machine), `kubelet`, `registry` (the API in
process), `auth`, `apiserver` (the API over HTTP), `controllers`, `services`, `scheduler`, `daemon` (the process).
Each imports only those before it. Begin with `daemon/cluster.py`, then `registry/api.py`.
"""
