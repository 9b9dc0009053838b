"""Suggests next commands in a form that the user can paste."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.cli.jobview.target import CommandPrefix
from tarragon.kube.meta import Key

WHEN_FINISHED = (("logs", "logs"), ("details", "describe"), ("clean up", "delete"))
WHEN_FAILED = (("why", "why"), *WHEN_FINISHED)
WHILE_RUNNING = (("follow", "logs --follow"), ("details", "describe"), ("end it", "delete"))


def next_commands(prompt: CommandPrefix, key: Key, wanted: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yields one aligned line per (label, command): `  logs      tarragon logs digits`."""
    width = max((len(label) for label, _ in wanted), default=0)
    for label, command in wanted:
        yield f"  {label.ljust(width)}   {command_line(prompt, key, command)}"


def command_line(prompt: CommandPrefix, key: Key, command: str) -> str:
    """Returns a command about that job: `logs --follow` becomes `tarragon -n research logs digits --follow`."""
    where = "" if key.namespace in {"", prompt.namespace} else f" -n {key.namespace}"
    verb, _, options = command.partition(" ")
    return f"{prompt.program}{where} {verb} {key.name}{' ' + options if options else ''}"
