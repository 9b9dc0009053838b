"""An embedded Kubernetes: the API, controllers, scheduler and kubelet of a cluster on one machine, in one process.

The layers, lowest first: `schema`, `kinds` and `api` (the resources, and requests for them), `storage`, `crd`,
`validation`, `tables`, `apply` and `admission`, `home` (files on this machine), `kubelet`, `registry` (the API in
process), `auth`, `apiserver` (the API over HTTP), `controllers`, `services`, `scheduler`, `daemon` (the process).
A layer imports only layers before it. Begin reading with `daemon/cluster.py`, then `registry/api.py`.
"""
