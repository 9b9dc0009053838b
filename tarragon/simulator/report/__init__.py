"""Writes what a simulation found as one HTML file without scripts, fonts or pictures from elsewhere.

`page.py` is the file, `charts.py` says what is drawn, `svg.py` draws. Names come from a trace: all text is escaped.
"""
