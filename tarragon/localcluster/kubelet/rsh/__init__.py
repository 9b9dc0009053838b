"""Lets a program in one pod run commands in others, as mpirun does through ssh: the agent, its hosts, its installation.

Begin with `agent.py`, which containers run; `hosts.py` is where it finds pods, and `programs.py` puts it on their PATH.
"""
