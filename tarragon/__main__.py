"""Run the command line with `python -m tarragon`."""

from __future__ import annotations

from tarragon.cli.entry import main

main()
