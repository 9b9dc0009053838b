"""What the job kinds of kubeflow.org share: replica specs, run policy, names, labels, rules, verdict and CRD.

A framework passes what is its own (replica types, main container, port) as arguments. Begin with `shape.py`,
then `decoding.py`; `conversion` is for kinds with several generations.
"""
