"""Custom resource definitions: their validation, and the kinds that they define. Begin with `definitions.py`."""
