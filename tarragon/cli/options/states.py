"""The states of jobs, as `list` shows them, in the options of commands."""

from __future__ import annotations

import click

STATES = ("created", "waiting", "starting", "running", "restarting", "suspended", "succeeded", "failed", "deleted")
"""The states that `wait --for` waits for."""
LISTED_STATES = (*STATES[:-1], "stopping", "interrupted")
"""The states of jobs that exist. A job is interrupted if its embedded cluster does not run."""


def states(text: str) -> frozenset[str]:
    """Parses states with commas between them, such as `Running,Failed`, into lower case."""
    found = frozenset(word.strip().lower() for word in text.split(",")) - {""}
    for word in sorted(found - {*LISTED_STATES}):
        raise click.BadParameter(f"{word!r} is no state; the states are {', '.join(LISTED_STATES)}")
    return found


def complete_states(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Completes the last of the states: `running,f` to `running,failed`."""
    head, comma, last = incomplete.rpartition(",")
    given = head.lower().split(",")
    left = [state for state in LISTED_STATES if state not in given and state.startswith(last.lower())]
    return [f"{head}{comma}{state}" for state in left]
