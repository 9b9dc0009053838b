"""Why a job makes no progress or failed: a word for a table column, and a message."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tarragon.job import conditions
from tarragon.job.exit_codes import CRASH_SIGNALS
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.replica_state import PodTermination
from tarragon.job.status import FirstFailure, JobStatus
from tarragon.job.termination_message import telling_line
from tarragon.job.tracebacks import LONGEST_TEXT

MAX_MESSAGE_LENGTH = 1024
_LAST_LINE = LONGEST_TEXT
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
        # The message of a batch Job's limit ends with its last failure.
        suffix = f"; {_end(first)}" if _end(first) not in failed.message else ""
        return StatusReason(failed.reason, failed.message + suffix)
    return StatusReason(first.reason or conditions.FAILED, _end(first))


def describe_failure(replica: Replica, failure: FirstFailure | PodTermination) -> str:
    """Describe a failure in one line: the replica, its exit code and the last line of its output."""
    ended = _ended_by_signal(failure)
    if ended:
        return f"{replica}: exit code {failure.exit_code} ({ended})"
    code = "" if failure.exit_code is None else f"exit code {failure.exit_code}"
    return ": ".join(part for part in (str(replica), code or failure.reason, last_words(failure)) if part)


def last_words(failure: FirstFailure | PodTermination) -> str:
    """The line of its output that says most of the failure; empty if a signal ended the replica."""
    return "" if _ended_by_signal(failure) else telling_line(failure.message)[:_LAST_LINE]


def _end(first: FirstFailure) -> str:
    return describe_failure(first.replica, first)


def _ended_by_signal(first: FirstFailure | PodTermination) -> str:
    """The signal that ended the replica. In that case its last output does not explain the failure."""
    code = first.exit_code or 0
    if first.reason not in {"", "Error", _OUT_OF_MEMORY}:
        return ""
    if code in CRASH_SIGNALS:
        return f"ended by {CRASH_SIGNALS[code]}"
    signal = _SIGNAL_OF_EXIT_CODE.get(code, "")
    often = "; often out of memory" if signal == "SIGKILL" and first.reason != _OUT_OF_MEMORY else ""
    return f"killed: {signal}{often}" if signal else ""
