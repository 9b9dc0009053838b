"""The process kubelet: runs the containers of a node's pods as local processes and reports their status.

The layers, from the bottom up: `base` (specs, files, processes), `devices`, `images`, `shim` (supervises one
container), `rsh` (ssh between containers), `network`, `volumes`, `streaming` (exec, attach, port-forward), `probes`,
`node`, `pod` (one pod from admission to removal), `resources` (usage and eviction), `hollow` (nodes without processes,
for scale tests), `kubelet` (all pods of a node), `remote` (a node of another cluster). Begin with `kubelet.py`, then
`pod/pod.py`.
"""
