"""Runs the pods of one node of any Kubernetes API as local processes. Knows the port `Cluster`, and no job."""
