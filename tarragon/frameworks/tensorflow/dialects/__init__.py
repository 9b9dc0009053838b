"""The generations of the API, one module each. Begin with `v1.py`; `all_dialects.py` lists them."""
