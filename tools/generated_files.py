"""Writing generated files, or checking that they are up to date, for the programs make_*.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], arguments: list[str], program: str) -> int:
    """Write the files, or with --check list the stale ones. Returns the exit code: 1 if --check finds a stale file."""
    if "--check" in arguments:
        stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
        for path in stale:
            print(f"{path} is out of date; run python tools/{program}")
        return 1 if stale else 0
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"{path}: {len(text.encode()):,} bytes")
    return 0
