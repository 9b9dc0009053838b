"""Reads CSV files with a header, also compressed ones. Faults name the file, the line and the column."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.errors import TarragonError

_REMEDY = "it should be a text file, or one in gzip"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a file: its cells by column."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        return self.cells.get(column) or ""

    def amount(self, column: str) -> float:
        """Return a finite number that is not negative. Raises TarragonError."""
        try:
            found = float(self.text(column))
        except ValueError:
            found = math.nan
        if not 0 <= found < math.inf:
            raise self.fault(column, "is not a number from 0 on")
        return found

    def count(self, column: str) -> int:
        """Return a whole number. Raises TarragonError."""
        found = self.amount(column)
        if found != int(found):
            raise self.fault(column, "is not a whole number")
        return int(found)

    def positive(self, column: str) -> int:
        """Return a whole number from 1 on. Raises TarragonError."""
        found = self.count(column)
        if not found:
            raise self.fault(column, "is not 1 or more")
        return found

    def fault(self, column: str, why: str) -> TarragonError:
        return TarragonError(f"can't read {self.path}", why=f"line {self.line}: {column} {self.text(column)!r} {why}")


@dataclass(frozen=True, slots=True)
class Table:
    path: Path
    columns: Sequence[str]
    rows: Sequence[Row]

    def has(self, columns: Collection[str]) -> bool:
        return set(columns) <= set(self.columns)


def read_table(path: Path) -> Table:
    """Read a CSV file, which may be compressed with gzip. Raises TarragonError."""
    text = read_text(path)
    try:
        reader = csv.DictReader(text.splitlines(), restval="")
        rows = [Row(path, line, dict(cells)) for line, cells in enumerate(reader, start=2)]
    except csv.Error as error:
        raise TarragonError(f"can't read {path}", why=str(error), remedy=_REMEDY) from error
    return Table(path, reader.fieldnames or (), rows)


def read_text(path: Path) -> str:
    """Read a file, which may be compressed with gzip. Raises TarragonError."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TarragonError(f"can't read {path}", why=reason, remedy=_REMEDY) from error
