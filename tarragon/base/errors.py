"""The base classes of errors: a Problem is a fault in a user's manifest, a TarragonError ends an operation.

    TarragonError               what happened, why, and what to do; carries the exit code of the CLI
      client.errors.ApiError    an error response of a Kubernetes API (see there for its subclasses)

Invalid user data is a list of Problems and never an exception, so that all problems are reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a manifest. `path` is written as in `spec.tfReplicaSpecs.Worker.replicas`.

    The message has neither the path nor a full stop. The remedy, if there is one, says what to write instead.
    """

    path: str
    message: str
    remedy: str = ""
    line: int | None = None
    """The line of the manifest file, if there is one."""
    is_of_name: bool = False
    """Whether only the name of the field is wrong: its value has problems of its own, which do not follow from it."""

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line is not None else []
        text = ": ".join([*where, *filter(None, [self.path]), self.message])
        return f"{text}; {self.remedy}" if self.remedy else text


class TarragonError(Exception):
    """Ends a command. It has a line for what happened, why, and what to do, and is shown without a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.summary = what
        self.cause = why
        self.remedy = remedy

    def __str__(self) -> str:
        return "\n".join(line for line in (self.summary, self.cause, self.remedy) if line)
