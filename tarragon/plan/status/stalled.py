"""Summarizes why pods of a gang do not start, grouped by reason: "3 of 4 workers: …"."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.job.model import Replica, ReplicaType
from tarragon.kube.meta import Key
from tarragon.plan.nodes.storage import claim_names
from tarragon.plan.view.job_view import Scene
from tarragon.plan.view.stalls import NOT_PREPARED, Stall

MOST_GROUPS = 4
ALSO = "; also "


@dataclass(frozen=True, slots=True)
class Told:
    """The reason why replicas do not start, and a message that names them."""

    reason: str
    message: str


def hindrance(view: Scene, before: Told | None) -> Told | None:
    """Report stalls that keep the gang from starting and count towards its timeout. `before` is the last report."""
    return _report(view, before, lambda stall: stall.is_hindrance)


def delay(view: Scene, before: Told | None) -> Told | None:
    """Report stalls that only delay replicas: the gang keeps its resources."""
    return _report(view, before, lambda stall: not stall.is_hindrance)


def next_told(view: Scene) -> dt.datetime | None:
    """Return when the next stall will have lasted so long that it is reported; None if there is none."""
    times = (each.at for each in view.stalls.values())
    return min((at for at in times if at is not None and at > view.now), default=None)


def _report(view: Scene, before: Told | None, is_selected: Callable[[Stall], bool]) -> Told | None:
    groups: dict[tuple[str, ReplicaType], dict[Replica, Stall]] = {}
    for replica, stall in sorted(view.stalls.items()):
        if stall.is_told(view.now) and is_selected(stall):
            groups.setdefault((stall.reason, replica.type), {})[replica] = stall
    if not groups:
        return None
    # Most replicas first; ties are broken by reason and type, so that the message is stable.
    ranked = sorted(groups, key=lambda group: (-len(groups[group]), group))
    first, *rest = ranked[:MOST_GROUPS]
    message = _group_message(view, groups[first], before)
    also = [f"{_affected(view, list(groups[each]))}: {each[0]}" for each in rest]
    return Told(first[0], ALSO.join([message, ", ".join(also)]) if also else message)


def _group_message(view: Scene, group: Mapping[Replica, Stall], before: Told | None) -> str:
    stalls = list(group.values())
    detailed = next((each for each in stalls if not each.is_brief), None)
    message = stalls[0].words if detailed is None else detailed.words
    if detailed is None and before is not None and before.reason == stalls[0].reason:
        message = before.message.partition(ALSO)[0].partition(": ")[2] or message
    claims = ", ".join(_unbound_claims(view, next(iter(group)))) if stalls[0].reason == NOT_PREPARED else ""
    return f"{_affected(view, list(group))}: {message}" + (f" (not bound: {claims})" if claims else "")


def _affected(view: Scene, replicas: Sequence[Replica]) -> str:
    """`worker-1`, `3 of 4 workers`, `all 4 workers`."""
    if len(replicas) == 1:
        return str(replicas[0])
    kind = replicas[0].type
    total = view.size.get(kind, len(replicas))
    of = f"all {total}" if total == len(replicas) else f"{len(replicas)} of {total}"
    return f"{of} {kind.word}" + ("" if kind is ReplicaType.PS else "s")


def _unbound_claims(view: Scene, replica: Replica) -> Iterator[str]:
    group = view.job.group(replica.type)
    claims, namespace = view.observed.storage.claims, view.job.key.namespace
    for name in claim_names(group.template) if group is not None else ():
        claim = claims.get(Key(namespace, name))
        if claim is not None and not claim.is_bound:
            yield f"{name} ({claim.status.phase or 'Pending'})"
