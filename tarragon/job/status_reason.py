"""Why a job makes no progress or failed: a word for a table column, and a message."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tarragon.job import conditions
from tarragon.job.phase import Phase
from tarragon.job.status import FirstFailure, JobStatus

MAX_MESSAGE_LENGTH = 1024
_LAST_LINE = 200
_OUT_OF_MEMORY = "OOMKilled"
_SIGNAL_OF_EXIT_CODE = MappingProxyType({129: "SIGHUP", 130: "SIGINT", 137: "SIGKILL", 143: "SIGTERM"})


@dataclass(frozen=True, slots=True)
class StatusReason:
    """The reason for a job's state. Both fields are empty while the job needs no explanation."""

    reason: str = ""
    message: str = ""


def reason_of(status: JobStatus) -> StatusReason:
    found = _reason(status)
    message = (
        found.message if len(found.message) <= MAX_MESSAGE_LENGTH else found.message[: MAX_MESSAGE_LENGTH - 1] + "…"
    )
    return StatusReason(found.reason, message)


def _reason(status: JobStatus) -> StatusReason:
    if status.phase is Phase.FAILED:
        return _failure(status)
    if status.phase in {Phase.SUCCEEDED, Phase.SUSPENDED}:
        return StatusReason()
    admission = status.admission
    if admission is not None and admission.admitted_at is None and admission.wait is not None:
        return StatusReason(admission.wait.code, admission.wait.message)
    if status.obstacle is not None:
        return StatusReason(status.obstacle.reason, status.obstacle.message)
    said = status.condition(conditions.STALLED) or status.condition(conditions.NOT_GROWN)
    return StatusReason() if said is None or not said.is_true else StatusReason(said.reason, said.message)


def _failure(status: JobStatus) -> StatusReason:
    """The limit that the job exceeded, if any; otherwise how the first failed replica ended."""
    failed, first = status.condition(conditions.FAILED), status.first_failure
    if first is None:
        return StatusReason() if failed is None else StatusReason(failed.reason, failed.message)
    if failed is not None and failed.reason in conditions.LIMIT_EXCEEDED_REASONS:
        return StatusReason(failed.reason, f"{failed.message}; {_end(first)}")
    return StatusReason(first.reason or conditions.FAILED, _end(first))


def _killed(first: FirstFailure) -> str:
    """The external signal that killed the replica. In that case its last output does not explain the failure."""
    signal = _SIGNAL_OF_EXIT_CODE.get(first.exit_code or 0, "")
    if not signal or first.reason not in {"", "Error", _OUT_OF_MEMORY}:
        return ""
    return f"{signal}; often out of memory" if signal == "SIGKILL" and first.reason != _OUT_OF_MEMORY else signal


def _end(first: FirstFailure) -> str:
    killed = _killed(first)
    if killed:
        return f"{first.replica}: exit code {first.exit_code} (killed: {killed})"
    code = "" if first.exit_code is None else f"exit code {first.exit_code}"
    last = first.message.strip().rpartition("\n")[2][:_LAST_LINE]
    return ": ".join(part for part in (str(first.replica), code or first.reason, last) if part)
