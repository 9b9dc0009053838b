"""The home folder of a cluster on this machine: its files, certificates, lock, and the server that uses it.

Begin reading with `home.py`.
"""
