"""Keeps the anchor pods that hold GPUs for the pods that share them.

Modules, lowest first: `uuid_reader` (which GPU an anchor has), `controller` (which anchors there are). Begin with
`controller.py`; what is decided is in `plan/lifecycle/gpu_anchors.py`, and what is known in `informers/gpu_anchors.py`.
"""
