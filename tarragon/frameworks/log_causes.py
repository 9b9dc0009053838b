"""Probable causes of failures by the lines of a replica's log: what a framework knows about its own errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

MISSING_MODULE = r"(?:No module named|module specification for) '?"
"""The beginning of Python's two messages about a module that is not installed."""


@dataclass(frozen=True, slots=True)
class LogCause:
    """A row of a table of causes. The pattern is searched for in each line, and in each box of mpirun as one line.

    `cause` and `remedy` may use {name} (the pattern's group), {getting} (how that module is got), {environment},
    {install}, {others} (which other replica ended first), and {more_memory} (what helps besides using less).
    `times` is the number of lines that must match: a single refused connection at the start is normal.
    """

    pattern: str
    cause: str
    remedy: str
    times: int = 1
    remedy_with: Callable[[Mapping[str, str]], str] | None = None
    """Makes the remedy where it is known which packages the replica's environment has, and in which versions."""
