"""How the policies are called, for those who offer the choice: to import the policies themselves takes its time."""

from __future__ import annotations

NAMES = ("fifo", "backfill", "dragon")
DEFAULT = "dragon"
