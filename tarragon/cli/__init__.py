"""The command line. A module of `commands` parses one command's arguments; the packages below it do the work.

The packages, from the bottom up: `output` (text, colours, terminal), `options` (flags and configuration), `jobview`
(one job as users see it), `targets` (the cluster that a command uses), `manifest` (files that are submitted), `report`
(why a job waits or failed), `follow` (watching a job until it ends), `jobs`, `checks`, `explain`, `top`, `debugdump`,
`operator`, and `commands`. Each imports only those before it. Begin with `main.py`, then read a command in `commands`.
"""
