"""The operator: watches jobs and pods, decides with `plan` and `scheduling`, and writes the results to the cluster.

Sub-packages, lowest first: `informers` (caches and indexes), `metrics`, `scheduler` (gang admission), `reconciler` (one
job at a time), `coexistence` (other operators), `gpu_anchors` (pods that hold GPUs for those that share them),
`log_reading` (printed progress), `progress` (reports of programs), `manager` (the process). Each imports only the ones
before it. Begin with `manager/operator.py`.
"""
