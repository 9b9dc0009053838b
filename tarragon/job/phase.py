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


class JobSignal(StrEnum):
    """What the replicas, the user or a limit mean for the job. At most one applies at a time: the most severe."""

    STARTED = "Started"
    REPLICA_LOST = "Lost"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_ENDS = {JobSignal.SUCCEEDED: Phase.SUCCEEDED, JobSignal.FAILED: Phase.FAILED}

TRANSITIONS: dict[Phase, dict[JobSignal, Phase]] = {
    Phase.CREATED: {
        **_ENDS,
        JobSignal.STARTED: Phase.RUNNING,
        JobSignal.REPLICA_LOST: Phase.RESTARTING,
        JobSignal.SUSPENDED: Phase.SUSPENDED,
        JobSignal.RESUMED: Phase.CREATED,
    },
    Phase.RUNNING: {
        **_ENDS,
        JobSignal.STARTED: Phase.RUNNING,
        JobSignal.REPLICA_LOST: Phase.RESTARTING,
        JobSignal.SUSPENDED: Phase.SUSPENDED,
        JobSignal.RESUMED: Phase.RUNNING,
    },
    Phase.RESTARTING: {
        **_ENDS,
        JobSignal.STARTED: Phase.RUNNING,
        JobSignal.REPLICA_LOST: Phase.RESTARTING,
        JobSignal.SUSPENDED: Phase.SUSPENDED,
        JobSignal.RESUMED: Phase.RESTARTING,
    },
    Phase.SUSPENDED: {
        **_ENDS,
        JobSignal.STARTED: Phase.SUSPENDED,
        JobSignal.REPLICA_LOST: Phase.SUSPENDED,
        JobSignal.SUSPENDED: Phase.SUSPENDED,
        JobSignal.RESUMED: Phase.CREATED,
    },
    Phase.SUCCEEDED: dict.fromkeys(JobSignal, Phase.SUCCEEDED),
    Phase.FAILED: dict.fromkeys(JobSignal, Phase.FAILED),
}


def next_phase(phase: Phase, signal: JobSignal | None) -> Phase:
    """The next phase; without a signal, the same phase."""
    return phase if signal is None else TRANSITIONS[phase][signal]
