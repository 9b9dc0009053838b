"""The objects of an MPIJob: names, labels, host files, permissions, and what the pods get to reach each other.

Begin with `pod_wiring.py`. It may import the names and options of the folder above.
"""
