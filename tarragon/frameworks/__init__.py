"""The plug-ins for training frameworks, one folder each. They are pure: no I/O, no clock, no randomness.

Nobody imports a framework's folder but the registry; the rest of the program asks the `Framework` value. Begin with
`plugin.py`; `kubeflow` is what all kinds of kubeflow.org share.
"""
