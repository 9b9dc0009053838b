"""TFJob and its predecessor TfJob: TF_CONFIG, and all generations of their API.

`framework.py` has the Framework values, `map_decoding.py` the generations with a map of replicas, `replica_list` those
with a list, `conversion` what leads from one to another. Begin with `framework.py`.
"""
