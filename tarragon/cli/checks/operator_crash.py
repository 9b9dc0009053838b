"""Why an operator's pod has ended, by what its container said last. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.cli.checks.installation import own_container
from tarragon.cli.jobview.exits import exit_text
from tarragon.kube.meta import JsonObject

LAST_LINES = 20
"""Lines of its log in which an operator says why it ends."""
_LONGEST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """An operator's container that has ended with an error, and restarts or not. `message` may be empty."""

    namespace: str
    pod: str
    container: str
    exit_code: int
    message: str = ""
    is_restarted: bool = False
    """Whether it runs again: its log is then that of the previous run."""


def crash_of(pod: JsonObject) -> Crash | None:
    """Returns how the operator in the pod ended, unless it is ready or has never ended with an error."""
    name = own_container(pod)["name"]
    statuses: Sequence[JsonObject] = (pod.get("status") or {}).get("containerStatuses") or ()
    status = next((each for each in statuses if each["name"] == name), {})
    state = status.get("state") or {}
    end = state.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    if status.get("ready") or not end.get("exitCode"):
        return None
    return Crash(
        namespace=pod["metadata"]["namespace"],
        pod=pod["metadata"]["name"],
        container=name,
        exit_code=end["exitCode"],
        message=end.get("message", ""),
        is_restarted="running" in state,
    )


def crash_text(crash: Crash, log: str) -> str:
    """`tarragon-1 ended: exit code 1; it said: Error: …`. Quotes the log where there is no termination message."""
    said = last_message(crash.message or log)
    end = f"{crash.pod} ended: {exit_text(crash.exit_code)}"
    return f"{end}; it said: {said}" if said else end


def last_message(text: str) -> str:
    """Returns the last message as one line: its last line that is not indented, and those that follow.

    That is an error of ours with its cause and remedy, the exception after a traceback, or a line of JSON.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    heads = [number for number, line in enumerate(lines) if not line[0].isspace()]
    said = "; ".join(line.strip() for line in lines[heads[-1] if heads else 0 :])
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
