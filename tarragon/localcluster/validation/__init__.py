"""Defaults and validation of written objects, kind by kind, as in a kube-apiserver. Pure: the time is an argument."""
