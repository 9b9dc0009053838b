"""What a training script needs of the Python environment that runs it, as a framework reads it in the script."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededVariable:
    """A variable without which the script fails in its environment, and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptMistake:
    """What makes the script fail in its environment, with a remedy.

    The remedy may contain `{install}`, the command that installs packages into the environment.
    """

    message: str
    remedy: str
