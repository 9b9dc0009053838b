"""Generations with a list of replicas, of 2017 and 2018: v1alpha1 and mlkube.io. Begin with `decoding.py`."""
