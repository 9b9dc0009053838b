"""How manifests of MPIJob are recognised, read and validated, and the definition of the kind.

Begin with `decoding.py`; `v1alpha1_decoding.py` reads v1alpha1. It may import the names and options of the folder
above.
"""
