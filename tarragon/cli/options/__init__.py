"""Flags, arguments, environment variables and the config file.

Imports `output`. Begin with `settings.py` (the global options), then `config_file.py`, then `command_tree.py`.
"""
