"""The process kubelet: runs the containers of a node's pods as local processes, and reports how they fare.

The floors, from the ground up: `base` (specs, files, processes), `devices`, `images`, `shim` (supervises one
container), `network`, `volumes`, `streaming` (exec, attach, port-forward), `probes`, `node`, `pod` (one pod from
admission to its end), `resources` (usage and eviction), `hollow` (nodes without processes, for tests of scale),
`kubelet` (all pods of a node), `remote` (a node on another machine). Begin with `kubelet.py`, then `pod/pod.py`.
"""
