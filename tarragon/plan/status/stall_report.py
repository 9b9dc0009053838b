"""Summarizes why pods of a gang do not start, grouped by reason: "3 of 4 workers: …"."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.job.model import Replica, ReplicaType
from tarragon.job.replica_ranges import name_replicas
from tarragon.job.status import JobStatus
from tarragon.kube.meta import Key
from tarragon.plan.lifecycle.pod_control import prerequisites
from tarragon.plan.nodes.storage import claim_names
from tarragon.plan.view.job_view import JobView
from tarragon.plan.view.stalls import IMAGE_PULL_BACKOFF, POD_NOT_PREPARED, SHORT_DELAY, Stall

MAX_GROUPS = 4
WAITS_FOR_REPLICAS = "WaitsForReplicas"
"""Replicas are created once others are ready, and those have been starting for long."""


@dataclass(frozen=True, slots=True)
class StallReport:
    """The reason why replicas do not start, and a message that names them."""

    reason: str
    message: str


def report_blocking_stalls(view: JobView) -> StallReport | None:
    """Report stalls that keep the gang from starting and count towards its timeout."""
    return _report(view, lambda stall: stall.prevents_start)


def report_delays(view: JobView, status: JobStatus) -> StallReport | None:
    """Report stalls that only delay replicas: the gang keeps its resources."""
    waits = (StallReport(wait.reason, wait.message) for wait in _waits(view, status) if wait.is_due(view.now))
    return _report(view, lambda stall: not stall.prevents_start) or next(waits, None)


def image_pull_errors(view: JobView) -> Mapping[ReplicaType, str]:
    """Why images of a type's replicas can't be pulled, as last reported: in back-off, kubelets do not say it."""
    errors: dict[ReplicaType, str] = {}
    for replica, stall in sorted(view.stalls.items()):
        if stall.reason == IMAGE_PULL_BACKOFF and not stall.lacks_cause:
            errors.setdefault(replica.type, stall.message)
    in_back_off = {replica.type for replica, stall in view.stalls.items() if stall.lacks_cause}
    recorded = view.recorded_status.image_pull_errors.items()
    return {kind: error for kind, error in recorded if kind in in_back_off} | errors


def next_report_at(view: JobView, status: JobStatus) -> dt.datetime | None:
    """Return when the next stall will have lasted so long that it is reported; None if there is none."""
    times = (each.report_at for each in (*view.stalls.values(), *_waits(view, status)))
    return min((at for at in times if at is not None and at > view.now), default=None)


def _waits(view: JobView, status: JobStatus) -> Iterator[Stall]:
    """Yield what replicas wait for that are created once others are ready."""
    for unmet in prerequisites(view, status):
        waiting = [replica for replica in view.desired_replicas if replica.type == unmet.waiting]
        awaited = [member.pod for replica, member in view.members.items() if replica.type == unmet.awaited]
        ends = [record.ended_at for replica, record in status.restarts.items() if replica in waiting]
        since = [at for at in (status.start_time, *ends, *(pod.metadata.creation_timestamp for pod in awaited)) if at]
        message = f"{name_replicas(waiting)} waits: {unmet.ready} of {unmet.total} {unmet.awaited.lower()}s are ready"
        if since:
            yield Stall(reason=WAITS_FOR_REPLICAS, message=message, report_at=max(since) + SHORT_DELAY)


def _report(view: JobView, is_selected: Callable[[Stall], bool]) -> StallReport | None:
    groups: dict[tuple[str, ReplicaType], dict[Replica, Stall]] = {}
    for replica, stall in sorted(view.stalls.items()):
        if stall.is_due(view.now) and is_selected(stall):
            groups.setdefault((stall.reason, replica.type), {})[replica] = stall
    if not groups:
        return None
    # Most replicas first; ties are broken by reason and type, so that the message is stable.
    ranked = sorted(groups, key=lambda group: (-len(groups[group]), group))
    first, *rest = ranked[:MAX_GROUPS]
    message = _group_message(view, groups[first])
    also = ", ".join(f"{_affected(view, list(groups[each]))}: {each[0]}" for each in rest)
    return StallReport(first[0], f"{message}; also {also}" if also else message)


def _group_message(view: JobView, group: Mapping[Replica, Stall]) -> str:
    stalls = list(group.values())
    detailed = next((stall.message for stall in stalls if not stall.lacks_cause), "")
    message = detailed or view.recorded_status.image_pull_errors.get(next(iter(group)).type) or stalls[0].message
    claims = ", ".join(_unbound_claims(view, next(iter(group)))) if stalls[0].reason == POD_NOT_PREPARED else ""
    return f"{_affected(view, list(group))}: {message}" + (f" (not bound: {claims})" if claims else "")


def _affected(view: JobView, replicas: Sequence[Replica]) -> str:
    """`worker-1`, `3 of 4 workers`, `all 4 workers`."""
    if len(replicas) == 1:
        return str(replicas[0])
    kind = replicas[0].type
    total = view.size.get(kind, len(replicas))
    of = f"all {total}" if total == len(replicas) else f"{len(replicas)} of {total}"
    return f"{of} {kind.lower()}" + ("" if kind.lower().endswith("s") else "s")


def _unbound_claims(view: JobView, replica: Replica) -> Iterator[str]:
    group = view.job.replica_spec(replica.type)
    claims, namespace = view.observed.storage.claims, view.job.key.namespace
    for name in claim_names(group.template) if group is not None else ():
        claim = claims.get(Key(namespace, name))
        if claim is not None and not claim.is_bound:
            yield f"{name} ({claim.status.phase or 'Pending'})"
