"""Converts jobs of one kind between the generations of its API, and reports everything that is lost.

Begin with `kind_conversion.py`: it says what a kind supplies. `convert.py` and `diff_view.py` are what it gets.
"""

from __future__ import annotations
