"""The scheduler's side of the road: a snapshot from the caches, a policy's decisions, admissions into the jobs' status.

It writes nothing but `status.tarragon.admission`, conditional on the version it decided on. The reconciler reads that;
neither calls the other.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from tarragon.base.clock import Clock
from tarragon.base.resources import CPU, minus
from tarragon.cluster.errors import Conflict, NotFound
from tarragon.cluster.port import Cluster
from tarragon.frameworks.plugin import Framework, Size
from tarragon.job.conditions import SUSPENDED
from tarragon.job.encoding import admission_fields
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.phase import Phase
from tarragon.job.status import Admission, Wait
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import CustomObject, JsonObject, Key
from tarragon.kube.patch import difference
from tarragon.operator.candidates import (
    Candidate,
    Candidates,
    JobId,
    candidate_from,
    homeless,
    least_and_wish,
    replicas_of,
    takes_part,
)
from tarragon.operator.eligibility import Eligibility, traits
from tarragon.operator.gather import World
from tarragon.operator.kept import KeptJob
from tarragon.operator.reservations import Reservations
from tarragon.operator.usage import Usage
from tarragon.plan.capacity import HOST_PORT, ONE_PORT, group_request, node_capacity
from tarragon.plan.obstacles import patience_for, unschedulable
from tarragon.plan.patience import Hold, ends_at, is_resting, revised
from tarragon.plan.predicates import away
from tarragon.plan.rebuilt import Remains, housed, is_nowhere, rebuilt, remains
from tarragon.plan.scene import may_grow
from tarragon.plan.stalls import hinders
from tarragon.plan.storage import claim_names
from tarragon.plan.unplaced import is_left, left
from tarragon.scheduling import decision as decisions
from tarragon.scheduling.policies import Policy
from tarragon.scheduling.snapshot import Demand, Gang, NodeState, RunningGang, Snapshot

OVERCOMMIT_ANNOTATION = "tarragon.dev/overcommit"
"""On a node: the resources (`cpu`) whose requests are shares there, not amounts."""
HOST_PORTS = "hostPorts"
"""Among them: pods of such a node never collide in a port, as each gets one of its own."""
UNBOUNDED = 10**15
RETELL_SECONDS = 10.0
"""A wait whose code stays is not told anew more often than this, however its amounts change."""
LONGEST_LAG_SECONDS = 30.0
"""A watch that is further behind our own write than this is believed nevertheless."""

BREATH = 20
"""Jobs that are read before others get their turn on the event loop."""

log = structlog.get_logger(__name__)


class Admitter:
    """One round at a time. It remembers what it has read: a round costs reading what has changed since the last."""

    def __init__(self, cluster: Cluster, clock: Clock, world: World, policy: Policy) -> None:
        self._cluster = cluster
        self._clock = clock
        self._world = world
        self._policy = policy
        self._usage = Usage(world.pods)
        self._candidates = Candidates(world.nodes.objects)
        self._reservations = Reservations(world)
        self._eligibility = Eligibility(world)
        self._changes: dict[JobId, None] = {}
        self._told: dict[JobId, float] = {}
        self._places_gangs = True
        self._demands: dict[JobId, Sequence[Demand]] = {}
        self._with_claims: set[JobId] = set()
        for kind, cache in world.jobs.items():
            cache.subscribe(partial(self._changed, kind))
        world.nodes.subscribe(self._node_changed)
        for kind_of_storage in world.optional:
            kind_of_storage.subscribe(self._storage_changed)

    @property
    def unread(self) -> int:
        """Changes that the next round has to take in."""
        return len(self._changes) + self._reservations.unread

    async def round(self) -> float | None:
        """Decide once and write what has changed. Seconds until the next round even if nothing changes, or None."""
        await self._catch_up()
        may_place = self._may_place()
        revised = self._revised(self._clock.now())
        revised += self._rebuilt(self._clock.now()) if may_place else []
        snapshot = self._snapshot(revised)
        by_name = {candidate.name: candidate for candidate in self._candidates.open.values()}
        writes = revised + [
            (candidate, admission)
            for decided in (self._policy(snapshot) if may_place else ())
            if not isinstance(decided, decisions.Again)
            for candidate in [by_name[decided.gang]]
            if (admission := admission_after(candidate, decided, snapshot.now)) != candidate.admission
        ]
        writes += self._left({candidate.id for candidate, _ in writes}, snapshot.now)
        due = [(candidate, admission) for candidate, admission in writes if self._may_tell(candidate, admission)]
        await _all_of(*(self._write(candidate, admission) for candidate, admission in due))
        waits = [RETELL_SECONDS] if len(due) < len(writes) else []
        return min([*waits, *self._patience_left(self._clock.now())], default=None)

    def _revised(self, now: dt.datetime) -> list[tuple[Candidate, Admission]]:
        """Those whose pods could not be made, or bound, for too long; and those that are over it."""
        return [
            (candidate, admission)
            for candidate in self._candidates.open.values()
            if candidate.is_admitted and (candidate.status.obstacle is not None or candidate.has_retry)
            if not is_nowhere(candidate.admission)
            for admission in [revised(self._hold(candidate), now, self._patience(candidate))]
            if admission != candidate.admission
        ]

    def _rebuilt(self, now: dt.datetime) -> list[tuple[Candidate, Admission]]:
        """Those that run although nothing is on record of it, and those of which somebody else has bound a pod."""
        return [
            (candidate, admission)
            for candidate in self._candidates.open.values()
            for before in [candidate.admission]
            if before is None or is_nowhere(before)
            for found in [self._remains(candidate)]
            for admission in [rebuilt(found, *bounds(candidate), now) if before is None else housed(before, found)]
            if admission is not None and admission != before
        ]

    def _remains(self, candidate: Candidate) -> Remains:
        pods = self._world.pods_of(candidate.object)
        return remains(candidate.dialect, candidate.job, candidate.status, pods)

    def _homeless(self, candidate: Candidate, admission: Admission) -> frozenset[Replica]:
        """Not those that have a pod which somebody else is to bind."""
        found = homeless(candidate, admission, self._world.nodes.objects)
        return found - self._remains(candidate).unbound if is_nowhere(admission) else found

    def _patience_left(self, now: dt.datetime) -> Iterator[float]:
        """Seconds until somebody's patience, or rest, is over."""
        for candidate in self._candidates.open.values():
            admission = candidate.admission
            if admission is None:
                continue
            ends = ends_at(admission, candidate.status.obstacle, self._patience(candidate))
            for at in (ends, admission.retry.after if admission.retry is not None else None):
                if at is not None and at > now:
                    yield (at - now).total_seconds()

    def _patience(self, candidate: Candidate) -> float:
        return patience_for(candidate.status.obstacle, self._world.settings)

    def _hold(self, candidate: Candidate) -> Hold:
        assert candidate.admission is not None  # noqa: S101 - of those that are admitted
        return Hold(
            admission=candidate.admission,
            obstacle=candidate.status.obstacle,
            least={group.type: least_and_wish(candidate.job, group)[0] for group in candidate.job.groups},
            there=candidate.admission.nodes.keys() & (candidate.status.finished | self._there(candidate)),
            runs=candidate.status.phase is Phase.RUNNING,
        )

    def _there(self, candidate: Candidate) -> set[Replica]:
        pods = self._world.pods_of(candidate.object)
        return {replica for replica, pod in replicas_of(candidate, pods) if self._gets_on(candidate, pod)}

    def _gets_on(self, candidate: Candidate, pod: Pod) -> bool:
        if pod.is_finished or unschedulable(pod) is not None:
            return False
        return not hinders(pod, candidate.framework.main_container, self._clock.now())

    def _may_place(self) -> bool:
        """A change is told once, to whoever reads logs; each job that it concerns says so itself."""
        before, self._places_gangs = self._places_gangs, self._world.places_gangs
        if before and not self._places_gangs:
            why = "it keeps the jobs of some namespaces only" if self._world.settings.namespaces else "nodes: forbidden"
            log.warning("placement is left to kube-scheduler: no gangs, no queue", why=why)
        elif self._places_gangs and not before:
            log.info("placement is ours again; jobs that were left to kube-scheduler stay so")
        return self._places_gangs

    def _left(self, decided: Collection[JobId], now: dt.datetime) -> list[tuple[Candidate, Admission]]:
        """Jobs that kube-scheduler places: those that were left to it once, and all if we can't place."""
        several = self._candidates.open if self._places_gangs else self._candidates.all
        return [
            (candidate, admission)
            for candidate in several.values()
            if candidate.id not in decided and not candidate.is_refused
            if is_left(candidate.admission) or not self._places_gangs
            for before in [candidate.admission or Admission(queued=queued_since(candidate, now))]
            for admission in [left(before, size_without_us(candidate), now)]
            if admission != candidate.admission
        ]

    def _changed(self, kind: str, key: Key, _: CustomObject | None, new: CustomObject | None) -> None:
        if new is None and (kind, key) not in self._candidates.all:
            # Else whoever stands by for months would remember every job that ever was.
            self._changes.pop((kind, key), None)
            self._reservations.forget((kind, key))
        else:
            self._changes[kind, key] = None

    async def _catch_up(self) -> None:
        """Between rounds a change costs nothing, and an operator that only stands by has no rounds."""
        taken_in = 0
        while self._changes:
            kind, key = next(iter(self._changes))
            del self._changes[kind, key]
            self._take_in(self._world.frameworks[kind], key, self._world.jobs[kind].objects.get(key))
            taken_in += 1
            if taken_in % BREATH == 0:
                await self._clock.sleep(0)

    def _take_in(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        """A watch that lags shows what was there before our own write: that would give away its places again."""
        known = self._candidates.all.get((framework.kind, key))
        if new is None or known is None or not self._is_news_of_the_past(new, known):
            self._follow(framework, key, new)

    def _is_news_of_the_past(self, new: CustomObject, known: Candidate) -> bool:
        """For a while only: a server whose storage was put back to an older state counts its versions from there."""
        lag = self._clock.monotonic() - self._told.get(known.id, -LONGEST_LAG_SECONDS)
        return lag < LONGEST_LAG_SECONDS and is_before(new, known.object)

    def _node_changed(self, _: Key, old: Node | None, new: Node | None) -> None:
        """Heartbeats change nothing of who may run there."""
        if traits(old) != traits(new):
            self._demands.clear()
            self._eligibility.forget()
        if old is None or new is None:
            self._candidates.nodes_changed()

    def _storage_changed(self, _: Key, __: object, ___: object) -> None:
        """Only what has claims may be able to run elsewhere now."""
        for job in self._with_claims:
            self._demands.pop(job, None)
        self._with_claims.clear()

    def _demanded(self, candidate: Candidate) -> Sequence[Demand]:
        """Reading the templates and asking every node is dear; between two rounds few jobs change, and fewer nodes."""
        known = self._demands.get(candidate.id)
        if known is None:
            known = self._demands[candidate.id] = demands(candidate, self._eligibility)
            if any(any(claim_names(group.template)) for group in candidate.job.groups):
                self._with_claims.add(candidate.id)
        return known

    def _follow(self, framework: Framework, key: Key, new: CustomObject | None) -> None:
        self._demands.pop((framework.kind, key), None)
        self._reservations.job_changed((framework.kind, key))
        candidate = None if new is None else self._candidate(framework, new)
        if candidate is None:
            self._candidates.drop((framework.kind, key))
            self._told.pop((framework.kind, key), None)
        else:
            self._candidates.put(candidate)

    def _candidate(self, framework: Framework, found: CustomObject) -> Candidate | None:
        if not takes_part(found):
            return None
        return candidate_from(framework, found, self._world.readings.of(framework.kind, found), self._world.settings)

    def _may_tell(self, candidate: Candidate, admission: Admission) -> bool:
        before = candidate.admission
        if before is None and candidate.id in self._told:
            # The server took one and did not keep it: not at once again, there may be thousands.
            return self._clock.monotonic() - self._told[candidate.id] >= RETELL_SECONDS
        only_words = (
            before is not None
            and before.wait is not None
            and admission.wait is not None
            and before.wait.code == admission.wait.code
        )
        return not only_words or self._clock.monotonic() - self._told.get(candidate.id, 0.0) >= RETELL_SECONDS

    async def _write(self, candidate: Candidate, admission: Admission) -> None:
        metadata = candidate.object.metadata
        before = recorded_admission(candidate.object)
        patch = {
            "metadata": {"resourceVersion": metadata.resource_version},
            "status": {"tarragon": {"admission": difference(before, admission_fields(admission))}},
        }
        try:
            kind = candidate.framework.resource.reading(KeptJob)
            written = await self._cluster.patch(kind, metadata.key, patch, subresource="status")
        except (Conflict, NotFound):
            return  # The cache will show what has changed, and that starts the next round.
        # Until the cache shows it too, our own write must count, or the next round would sell the same node again.
        # A cache that is ahead is right: after the news that a job is gone, nothing would ever take it away again.
        shown = self._world.jobs[candidate.framework.kind].objects.get(metadata.key)
        if shown is not None and shown.metadata.uid == metadata.uid and not is_before(written, shown):
            self._follow(candidate.framework, metadata.key, written)
            self._told[candidate.id] = self._clock.monotonic()

    def _snapshot(self, revised: Sequence[tuple[Candidate, Admission]]) -> Snapshot:
        """Of the gangs that run, those that are settled are in what is free on the nodes, and nowhere else.

        So are those about which this round has decided already.
        """
        self._reservations.reckon(self._candidates.all)
        promised = self._reservations.beyond(revised)
        left_out = {candidate.id for candidate, _ in revised}
        nodes = sorted(self._world.nodes.objects.values(), key=lambda node: node.metadata.name)
        candidates = sorted(self._candidates.open.values(), key=lambda candidate: candidate.id)
        now = self._clock.now()
        ports = host_ports(demand for candidate in candidates for demand in self._demanded(candidate))
        return Snapshot(
            now=now,
            nodes=[
                node_state(
                    node, [sums.on(node.metadata.name) for sums in (self._usage, self._reservations, promised)], ports
                )
                for node in nodes
                if not away(node)
            ],
            away=[node_state(node, [], ports) for node in nodes if away(node)],
            waiting=[
                Gang(
                    name=candidate.name,
                    queued=queued_since(candidate, now),
                    demands=self._demanded(candidate),
                )
                for candidate in candidates
                if not candidate.is_admitted
                and not is_resting(candidate.admission, now)
                and candidate.id not in left_out
            ],
            running=[
                RunningGang(
                    name=candidate.name,
                    demands=self._demanded(candidate),
                    nodes=candidate.admission.nodes,
                    elastic=may_grow(candidate.job, candidate.status) and not is_resting(candidate.admission, now),
                    whole=candidate.job.elastic is None,
                    homeless=self._homeless(candidate, candidate.admission),
                )
                for candidate in candidates
                if candidate.admission is not None
                and candidate.is_admitted
                and not is_left(candidate.admission)
                and candidate.id not in left_out
            ],
        )


async def _all_of(*writes: Coroutine[None, None, None]) -> None:
    """Raises the first error when all have come to an end: the next round must know what they did."""
    for ended in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


def is_before(left: CustomObject, right: CustomObject) -> bool:
    """Whether it is an older version of the same object; not of another one that took over its name."""
    if left.metadata.uid != right.metadata.uid:
        return False
    older, newer = left.metadata.resource_version, right.metadata.resource_version
    return older.isdecimal() and newer.isdecimal() and int(older) < int(newer)


def admission_after(candidate: Candidate, decided: decisions.AboutGang, now: dt.datetime) -> Admission:
    """What is to stand in the status; equal to what stands there when nothing has changed."""
    before = candidate.admission or Admission(queued=queued_since(candidate, now))
    match decided:
        case decisions.Wait(_, code, message):
            return replace(before, wait=Wait(code=code, message=message))
        case decisions.Place(_, nodes):
            return replace(before, admitted=now, size=size_of(nodes), nodes=nodes, wait=None, resized=None, reason="")
        case decisions.Resize(_, nodes, reason):
            after = replace(before, size=size_of(nodes), nodes=nodes, wait=None)
            return after if after.size == before.size else replace(after, resized=now, reason=reason)
        case decisions.Evict(_, code, message):
            return Admission(queued=before.queued, wait=Wait(code=code, message=message), retry=before.retry)


def queued_since(candidate: Candidate, now: dt.datetime) -> dt.datetime:
    """Since it was created, even if nobody looked at it for a while; a job that was suspended queues anew."""
    if candidate.admission is not None:
        return candidate.admission.queued
    suspension = candidate.status.condition(SUSPENDED)
    if suspension is None:
        return candidate.job.created or now
    # While it still says True, the reconciler has not told yet that the job is resumed, which it just was.
    return now if suspension.is_true else suspension.changed


def size_without_us(candidate: Candidate) -> Mapping[ReplicaType, int]:
    """As wished; one that runs grows only if it is elastic."""
    wished = {group.type: least_and_wish(candidate.job, group)[1] for group in candidate.job.groups}
    if candidate.admission is None or not candidate.is_admitted or may_grow(candidate.job, candidate.status):
        return wished
    return {kind: min(number, candidate.admission.size.get(kind, 0)) for kind, number in wished.items()}


def bounds(candidate: Candidate) -> tuple[Size, Size]:
    """How many replicas of each type it has at least, and how many it wishes."""
    both = {group.type: least_and_wish(candidate.job, group) for group in candidate.job.groups}
    return {kind: least for kind, (least, _) in both.items()}, {kind: wish for kind, (_, wish) in both.items()}


def size_of(nodes: Mapping[Replica, str]) -> Mapping[ReplicaType, int]:
    return Counter(replica.type for replica in nodes)


def demands(candidate: Candidate, eligibility: Eligibility) -> Sequence[Demand]:
    """Of each group, in the framework's start order: the parameter servers get their places first."""
    order = {kind: position for position, kind in enumerate(candidate.framework.start_order)}
    groups = sorted(candidate.job.groups, key=lambda group: order.get(group.type, len(order)))
    return [
        Demand(
            type=group.type,
            each=group_request(group),
            minimum=bounds[0],
            wish=bounds[1],
            eligible=eligible,
            refused="" if eligible else eligibility.why_nowhere(group.template),
        )
        for group in groups
        for bounds in [least_and_wish(candidate.job, group)]
        for eligible in [eligibility.of(group.template, candidate.job.key.namespace)]
    ]


def host_ports(demands: Iterable[Demand]) -> frozenset[str]:
    """Those that somebody asks for: of all others no node need say that it has them."""
    return frozenset(name for demand in demands for name in demand.each if name.startswith(HOST_PORT))


def node_state(node: Node, held: Sequence[Mapping[str, int]], ports: Collection[str] = ()) -> NodeState:
    """`capacity` is what gangs could get if nobody ran here."""
    shared = node.metadata.annotations.get(OVERCOMMIT_ANNOTATION, "").split(",")
    capacity = {**node_capacity(node), **dict.fromkeys(ports, UNBOUNDED if HOST_PORTS in shared else ONE_PORT)}
    if CPU in shared:
        capacity[CPU] = UNBOUNDED
    free: Mapping[str, int] = capacity
    for amounts in held:
        free = minus(free, amounts)
    return NodeState(name=node.metadata.name, capacity=capacity, free=free, away=away(node))


def recorded_admission(found: CustomObject) -> JsonObject:
    """The raw field as it stands, for the difference to be exact."""
    status = found.status if isinstance(found.status, dict) else {}
    tarragon = status.get("tarragon")
    recorded = tarragon.get("admission") if isinstance(tarragon, dict) else None
    return recorded if isinstance(recorded, dict) else {}
