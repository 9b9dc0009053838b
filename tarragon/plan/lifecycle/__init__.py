"""How pods are lost and replaced: displacement, graceful eviction, gang restarts, forced deletion, start timeouts.

Begin with `pod_control.py` (which pods to create), then the topic by its name.
"""
