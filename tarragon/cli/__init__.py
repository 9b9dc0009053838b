"""The command line. Each command parses its words and prints; what it does is below.

The floors, from the ground up: `output` (text, colours, terminal), `options` (flags and configuration), `jobview` (one
job, as people see it), `targets` (the cluster that is meant), `manifest` (files that are submitted), `report` (why a
job waits or failed), `follow` (a job until its end), `jobs`, `checks`, `explain`, `top`, `debugdump`, `operator`, and
`commands`. Each imports only those before it. Begin with `main.py`, then the command in `commands`.
"""
