"""What a new admission amounts to: one line in the log, and one count, for each decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from tarragon.job.model import ReplicaType
from tarragon.job.status import Admission
from tarragon.operator.informers.candidates import Candidate
from tarragon.operator.metrics.meter import Meter

START, GROW, SHRINK, MOVE, EVICT, WAIT = "start", "grow", "shrink", "move", "evict", "wait"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """`code` is why it waits, or has to; empty where it does not."""

    decision: str
    code: str
    reason: str
    nodes: int
    before: str
    after: str


def account_of(before: Admission | None, after: Admission) -> Account | None:
    """None where nothing was decided: only the words of a wait are others, or it, or a retry, is over."""
    decision = _decision(before, after)
    code = "" if after.wait is None else after.wait.code
    if decision == WAIT and code in {_code(before), ""}:
        return None
    return Account(
        decision=decision,
        code=code,
        reason=after.reason if decision in {GROW, SHRINK} else "" if after.wait is None else after.wait.message,
        nodes=len(set(after.nodes.values())),
        before=_words({} if before is None else before.size),
        after=_words(after.size),
    )


def tell(candidate: Candidate, after: Admission, meter: Meter) -> None:
    """To whoever reads logs, and to whoever counts."""
    kind, key = candidate.id
    about = {"kind": kind, "namespace": key.namespace, "job": key.name, "uid": candidate.object.metadata.uid}
    before = None if candidate.admission is None else candidate.admission.refused
    if after.refused is not None and after.refused != before:
        meter.refused_admission()
        log.warning("an admission was refused", **about, why=after.refused.message)
    account = account_of(candidate.admission, after)
    if account is None:
        return
    meter.told(account.decision, account.code)
    told = {"code": account.code, "reason": account.reason, "nodes": account.nodes}
    sizes = {"before": account.before, "after": account.after}
    log.info("decided", **about, decision=account.decision, **told, **sizes)


def _decision(before: Admission | None, after: Admission) -> str:
    held = before is not None and before.admitted is not None
    if after.admitted is None:
        return EVICT if held else WAIT
    if before is None or not held:
        return START
    was, now = sum(before.size.values()), sum(after.size.values())
    if was != now:
        return GROW if now > was else SHRINK
    return MOVE if before.nodes != after.nodes else WAIT


def _code(admission: Admission | None) -> str:
    return "" if admission is None or admission.wait is None else admission.wait.code


def _words(size: Mapping[ReplicaType, int]) -> str:
    return ", ".join(f"{number} {kind.word}" for kind, number in size.items() if number)
