"""The plug-ins for training frameworks, one folder each. They are pure: no I/O, no clock, no randomness."""
