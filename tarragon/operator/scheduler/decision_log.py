"""Logs and counts each scheduling decision when its admission has been written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from tarragon.job.model import ReplicaType
from tarragon.job.places import node_of
from tarragon.job.status import Admission
from tarragon.operator.informers.candidates import Candidate
from tarragon.operator.metrics.meter import Meter

START, GROW, SHRINK, MOVE, EVICT, WAIT = "start", "grow", "shrink", "move", "evict", "wait"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """A decision as the log shows it. `code` is the code of the job's wait; empty if the job does not wait."""

    decision: str
    code: str
    reason: str
    nodes: int
    size_before: str
    size_after: str


def summarize(before: Admission | None, after: Admission) -> DecisionSummary | None:
    """Classify a change of an admission; None if only a wait's message changed or a wait or retry ended."""
    decision = _decision(before, after)
    code = "" if after.wait is None else after.wait.code
    if decision == WAIT and code in {_wait_code(before), ""}:
        return None
    return DecisionSummary(
        decision=decision,
        code=code,
        # A member of an enum would be shown as that.
        reason=str(
            after.resize_reason if decision in {GROW, SHRINK} else "" if after.wait is None else after.wait.message
        ),
        nodes=len(set(map(node_of, after.nodes.values()))),
        size_before=_size_text({} if before is None else before.size),
        size_after=_size_text(after.size),
    )


def log_decision(candidate: Candidate, after: Admission, meter: Meter) -> None:
    """Log the decision and count it in the metrics."""
    kind, key = candidate.id
    job_fields = {"kind": kind, "namespace": key.namespace, "job": key.name, "uid": candidate.object.metadata.uid}
    refused_before = None if candidate.admission is None else candidate.admission.discarded
    if after.discarded is not None and after.discarded != refused_before:
        meter.admission_rejected()
        log.warning("an admission was refused", **job_fields, why=after.discarded.message)
    account = summarize(candidate.admission, after)
    if account is None:
        return
    meter.decision_written(account.decision, account.code)
    outcome = {"code": account.code, "reason": account.reason, "nodes": account.nodes}
    sizes = {"before": account.size_before, "after": account.size_after}
    log.info("scheduling decision", **job_fields, decision=account.decision, **outcome, **sizes)


def _decision(before: Admission | None, after: Admission) -> str:
    was_admitted = before is not None and before.admitted_at is not None
    if after.admitted_at is None:
        return EVICT if was_admitted else WAIT
    if before is None or not was_admitted:
        return START
    old_size, new_size = sum(before.size.values()), sum(after.size.values())
    if old_size != new_size:
        return GROW if new_size > old_size else SHRINK
    return MOVE if before.nodes != after.nodes else WAIT


def _wait_code(admission: Admission | None) -> str:
    return "" if admission is None or admission.wait is None else admission.wait.code


def _size_text(size: Mapping[ReplicaType, int]) -> str:
    return ", ".join(f"{number} {kind.lower()}" for kind, number in size.items() if number)
