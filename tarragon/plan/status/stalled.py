"""What is told of a gang's pods that do not get to run: "3 of 4 workers: …", the same words for the same trouble."""

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
    """A reason, and who is stopped by what."""

    reason: str
    message: str


def hindrance(scene: Scene, before: Told | None) -> Told | None:
    """What a gang can't start with. `before` is what was told last."""
    return _told(scene, before, lambda found: found.is_hindrance)


def delay(scene: Scene, before: Told | None) -> Told | None:
    """What keeps replicas from running for which nothing is given back."""
    return _told(scene, before, lambda found: not found.is_hindrance)


def next_told(scene: Scene) -> dt.datetime | None:
    """When something has lasted so long that it is to be told."""
    times = (each.at for each in scene.stalls.values())
    return min((at for at in times if at is not None and at > scene.now), default=None)


def _told(scene: Scene, before: Told | None, concerns: Callable[[Stall], bool]) -> Told | None:
    groups: dict[tuple[str, ReplicaType], dict[Replica, Stall]] = {}
    for replica, found in sorted(scene.stalls.items()):
        if found.is_told(scene.now) and concerns(found):
            groups.setdefault((found.reason, replica.type), {})[replica] = found
    if not groups:
        return None
    # Those of most replicas first; of equally many, always the same.
    ranked = sorted(groups, key=lambda group: (-len(groups[group]), group))
    lead, *others = ranked[:MOST_GROUPS]
    message = _words(scene, groups[lead], before)
    also = [f"{_who(scene, list(groups[each]))}: {each[0]}" for each in others]
    return Told(lead[0], ALSO.join([message, ", ".join(also)]) if also else message)


def _words(scene: Scene, group: Mapping[Replica, Stall], before: Told | None) -> str:
    found = list(group.values())
    full = next((each for each in found if not each.is_brief), None)
    words = found[0].words if full is None else full.words
    if full is None and before is not None and before.reason == found[0].reason:
        words = before.message.partition(ALSO)[0].partition(": ")[2] or words
    claims = ", ".join(_unbound_claims(scene, next(iter(group)))) if found[0].reason == NOT_PREPARED else ""
    return f"{_who(scene, list(group))}: {words}" + (f" (not bound: {claims})" if claims else "")


def _who(scene: Scene, replicas: Sequence[Replica]) -> str:
    """`worker-1`, `3 of 4 workers`, `all 4 workers`."""
    if len(replicas) == 1:
        return str(replicas[0])
    kind = replicas[0].type
    total = scene.size.get(kind, len(replicas))
    of = f"all {total}" if total == len(replicas) else f"{len(replicas)} of {total}"
    return f"{of} {kind.word}" + ("" if kind is ReplicaType.PS else "s")


def _unbound_claims(scene: Scene, replica: Replica) -> Iterator[str]:
    group = scene.job.group(replica.type)
    claims, namespace = scene.observed.storage.claims, scene.job.key.namespace
    for name in claim_names(group.template) if group is not None else ():
        claim = claims.get(Key(namespace, name))
        if claim is not None and not claim.is_bound:
            yield f"{name} ({claim.status.phase or 'Pending'})"
