"""`python -m tarragon`."""

from __future__ import annotations

from tarragon.cli.main import main

main()
