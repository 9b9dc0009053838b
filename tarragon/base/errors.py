"""What can go wrong, in two shapes: a Problem is the user's to mend, a TarragonError ends what was asked.

    TarragonError                what happened, why, what to do; carries the CLI's exit code
      cluster.errors.ApiError    a Kubernetes API said no (see there for its kinds)

Bad user data is never an exception but a list of Problems, so that all are told at once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a manifest: `path` as a user would write it (`spec.tfReplicaSpecs.Worker.replicas`).

    The message needs no path and no full stop; the remedy, where there is one, is what to write instead.
    """

    path: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        told = f"{self.path}: {self.message}" if self.path else self.message
        return f"{told}; {self.remedy}" if self.remedy else told


class TarragonError(Exception):
    """Ends a command: one line what, one line why, one line what to do. Never shown with a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        return "\n".join(line for line in (self.what, self.why, self.remedy) if line)
