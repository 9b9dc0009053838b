"""Decides how a Deployment moves from its old replica sets to the new one. Pure.

There are never more pods than maxSurge allows, nor fewer available ones than maxUnavailable does: nothing is decided
until the ReplicaSet controller has observed all specs, and pods are counted at the larger of spec and status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tarragon.localcluster.controllers.workloads.model import Deployment, ReplicaSet
from tarragon.localcluster.controllers.workloads.templates import is_same_template

PREFIX = "deployment.kubernetes.io/"
REVISION, HISTORY = f"{PREFIX}revision", f"{PREFIX}revision-history"
DESIRED_REPLICAS, MAX_REPLICAS = f"{PREFIX}desired-replicas", f"{PREFIX}max-replicas"


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment and its replica sets, of which the old ones are sorted by age, oldest first."""

    deployment: Deployment
    new: ReplicaSet | None
    old: Sequence[ReplicaSet]

    @property
    def all(self) -> list[ReplicaSet]:
        return [*self.old, *([self.new] if self.new is not None else [])]

    @property
    def limits(self) -> tuple[int, int]:
        """The numbers of pods that maxSurge and maxUnavailable allow."""
        strategy, wanted = self.deployment.spec.strategy, self.deployment.spec.replicas
        if strategy.type != "RollingUpdate":
            return 0, 0
        rolling = strategy.rolling_update
        more, fewer = _surge_and_unavailable(rolling.max_surge, rolling.max_unavailable, wanted)
        return more, min(fewer, wanted)

    @property
    def most(self) -> int:
        return self.deployment.spec.replicas + self.limits[0]


@dataclass(frozen=True, slots=True)
class Resize:
    replica_set: ReplicaSet
    replicas: int


@dataclass(frozen=True, slots=True)
class Step:
    """Replica sets to resize, and the size of the new replica set if it is to be created."""

    sizes: Sequence[Resize] = ()
    make: int | None = None


WAIT = Step()


def family(deployment: Deployment, replica_sets: Iterable[ReplicaSet]) -> Rollout:
    ordered = sorted(replica_sets, key=_age)
    same = (each for each in ordered if is_same_template(each.spec.template, deployment.spec.template))
    new = next(same, None)
    return Rollout(deployment, new, [each for each in ordered if each is not new])


def step(family: Rollout, *, old_pods_run: bool) -> Step:
    """The next step. `old_pods_run`: a pod of an old replica set has not finished, though it may be terminating."""
    spec = family.deployment.spec
    if not all(each.is_observed for each in family.all):
        return WAIT
    if spec.paused or is_resized(family):
        return Step(scaled(family))
    if spec.strategy.type == "Recreate":
        return _recreated(family, old_pods_run=old_pods_run)
    return _rolled(family)


def is_resized(family: Rollout) -> bool:
    """Whether the Deployment was scaled: its size differs from the one recorded in its replica sets."""
    wanted = str(family.deployment.spec.replicas)
    return any(
        each.metadata.annotations.get(DESIRED_REPLICAS, wanted) != wanted
        for each in family.all
        if each.spec.replicas > 0
    )


# -------------------------------------------------------------------------------------------------------------- rolling


def _recreated(family: Rollout, *, old_pods_run: bool) -> Step:
    down = [Resize(each, 0) for each in family.old if each.spec.replicas > 0]
    if down:
        return Step(down)
    if old_pods_run:
        return WAIT
    return _grown(family, family.deployment.spec.replicas)


def _rolled(family: Rollout) -> Step:
    wanted = family.deployment.spec.replicas
    has = family.new.spec.replicas if family.new is not None else 0
    room = family.most - sum(max(each.spec.replicas, each.count("replicas")) for each in family.all)
    grown = _grown(family, has + max(0, min(wanted - has, room)) if has < wanted else wanted)
    if grown != WAIT:
        return grown
    return Step(_shrunk(family))


def _grown(family: Rollout, replicas: int) -> Step:
    if family.new is None:
        return Step(make=replicas)
    return Step([Resize(family.new, replicas)]) if family.new.spec.replicas != replicas else WAIT


def _shrunk(family: Rollout) -> list[Resize]:
    """Shrink old replica sets: first by their unavailable pods, then by available ones above the minimum."""
    old = [each for each in family.old if each.spec.replicas > 0]
    new = family.new
    if not old or new is None:
        return []
    least = family.deployment.spec.replicas - family.limits[1]
    spare = sum(each.spec.replicas for each in family.all) - least - (new.spec.replicas - _available(new))
    sizes = {each.metadata.uid: each.spec.replicas for each in old}
    for each in old:
        broken = min(max(0, spare), each.spec.replicas - _available(each))
        sizes[each.metadata.uid] -= broken
        spare -= broken
    healthy = min(spare, sum(map(_available, family.all)) - least)
    for each in old:
        gone = min(max(0, healthy), sizes[each.metadata.uid])
        sizes[each.metadata.uid] -= gone
        healthy -= gone
    return [Resize(each, sizes[each.metadata.uid]) for each in old if sizes[each.metadata.uid] != each.spec.replicas]


def _available(replica_set: ReplicaSet) -> int:
    """Available replicas, without those that are about to be deleted."""
    return min(replica_set.count("availableReplicas"), replica_set.spec.replicas)


# -------------------------------------------------------------------------------------------------------------- scaling


def scaled(family: Rollout) -> list[Resize]:
    """Distribute a new size over the replica sets in proportion to theirs, so that a rollout keeps its progress."""
    wanted = family.deployment.spec.replicas
    active = [each for each in family.all if each.spec.replicas > 0]
    only = active[0] if len(active) == 1 else None
    if not active:
        only = family.new or (family.old[-1] if family.old else None)
    if only is not None:
        return [Resize(only, wanted)]
    if family.new is not None and family.new.spec.replicas == wanted == _available(family.new):
        return [Resize(each, 0) for each in family.old if each.spec.replicas > 0]
    return _shared_out(family, active) if family.deployment.spec.strategy.type == "RollingUpdate" else []


def _shared_out(family: Rollout, active: Sequence[ReplicaSet]) -> list[Resize]:
    allowed = family.most if family.deployment.spec.replicas > 0 else 0
    change = allowed - sum(each.spec.replicas for each in active)
    by_age = sorted(active, key=_age, reverse=change > 0)
    largest_first = sorted(by_age, key=lambda each: -each.spec.replicas)
    sizes: list[int] = []
    left = change
    for each in largest_first:
        part = _part(each, allowed, family)
        part = max(0, min(part, left)) if change > 0 else min(0, max(part, left))
        sizes.append(each.spec.replicas + part)
        left -= part
    if sizes:
        sizes[0] = max(0, sizes[0] + left)
    return [Resize(each, size) for each, size in zip(largest_first, sizes, strict=True)]


def _part(replica_set: ReplicaSet, allowed: int, family: Rollout) -> int:
    annotated = replica_set.metadata.annotations.get(MAX_REPLICAS, "")
    before = (
        int(annotated)
        if annotated.isdigit() and int(annotated)
        else int(family.deployment.status.get("replicas") or 0) or 1
    )
    return round(replica_set.spec.replicas * allowed / before) - replica_set.spec.replicas


# ------------------------------------------------------------------------------------------------------------ revisions


def revision_of(replica_set: ReplicaSet) -> int:
    text = replica_set.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def next_revision(family: Rollout) -> int:
    """The revision of the new replica set: one more than the largest of the old ones."""
    return max(map(revision_of, family.old), default=0) + 1


def beyond_history(family: Rollout) -> list[ReplicaSet]:
    """Empty old replica sets beyond revisionHistoryLimit."""
    spent = [
        each
        for each in family.old
        if not (each.spec.replicas or each.count("replicas") or each.metadata.is_being_deleted) and each.is_observed
    ]
    return sorted(spent, key=lambda each: (revision_of(each), _age(each)))[
        : max(0, len(family.old) - family.deployment.spec.revision_history_limit)
    ]


def _age(replica_set: ReplicaSet) -> tuple[str, str]:
    created = replica_set.metadata.creation_timestamp
    return (created.isoformat() if created else "", replica_set.metadata.name)


def _share(value: int | str, of: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * of // 100) if up else percent * of // 100


def _surge_and_unavailable(surge: int | str, unavailable: int | str, wanted: int) -> tuple[int, int]:
    """Resolve percentages. When both are 0, maxUnavailable is 1, as otherwise no rollout could proceed."""
    more, fewer = _share(surge, wanted, up=True), _share(unavailable, wanted, up=False)
    return more, fewer if more or fewer else 1
