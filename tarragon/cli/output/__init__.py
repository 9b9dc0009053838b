"""Text output: durations and tables, colours, wrapping, terminals, log lines and signals.

Imports nothing else of the command line. Begin with `terminal.py` and `words.py`.
"""
