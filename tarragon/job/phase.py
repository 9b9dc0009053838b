"""The state machine of a job as one table: a phase and a signal give the next phase."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a job. SUCCEEDED and FAILED are final."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        return self in {Phase.SUCCEEDED, Phase.FAILED}


class Signal(StrEnum):
    """What the replicas, the user or a limit mean for the job. At most one applies at a time: the most severe."""

    STARTED = "Started"
    LOST = "Lost"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_ENDS = {Signal.SUCCEEDED: Phase.SUCCEEDED, Signal.FAILED: Phase.FAILED}

TRANSITIONS: dict[Phase, dict[Signal, Phase]] = {
    Phase.CREATED: {
        **_ENDS,
        Signal.STARTED: Phase.RUNNING,
        Signal.LOST: Phase.RESTARTING,
        Signal.SUSPENDED: Phase.SUSPENDED,
        Signal.RESUMED: Phase.CREATED,
    },
    Phase.RUNNING: {
        **_ENDS,
        Signal.STARTED: Phase.RUNNING,
        Signal.LOST: Phase.RESTARTING,
        Signal.SUSPENDED: Phase.SUSPENDED,
        Signal.RESUMED: Phase.RUNNING,
    },
    Phase.RESTARTING: {
        **_ENDS,
        Signal.STARTED: Phase.RUNNING,
        Signal.LOST: Phase.RESTARTING,
        Signal.SUSPENDED: Phase.SUSPENDED,
        Signal.RESUMED: Phase.RESTARTING,
    },
    Phase.SUSPENDED: {
        **_ENDS,
        Signal.STARTED: Phase.SUSPENDED,
        Signal.LOST: Phase.SUSPENDED,
        Signal.SUSPENDED: Phase.SUSPENDED,
        Signal.RESUMED: Phase.CREATED,
    },
    Phase.SUCCEEDED: dict.fromkeys(Signal, Phase.SUCCEEDED),
    Phase.FAILED: dict.fromkeys(Signal, Phase.FAILED),
}


def after(phase: Phase, signal: Signal | None) -> Phase:
    """The next phase; without a signal, the same phase."""
    return phase if signal is None else TRANSITIONS[phase][signal]
