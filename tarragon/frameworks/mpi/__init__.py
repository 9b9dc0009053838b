"""MPIJob of kubeflow.org, v1alpha1 to v2beta1: a launcher that runs mpirun, and its workers.

`framework.py` has the Framework value, `dialects.py` the generations, `manifest` how they are read, `objects` what is
created, `conversion` what leads from one generation to another. Begin with `framework.py`; it may import `kubeflow` and
what is below.
"""
