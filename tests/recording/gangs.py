"""Measures gangs in recorded watches: how long a gang was partial, and whether a node was ever overcommitted.

A gang is partial while some of its pods are bound, and of a type fewer replicas than it needs are on a node, assigned
to one, or done. Gang scheduling exists to prevent this waste. Which indexes they have does not matter: an elastic gang
that shrinks gives back remote replicas first, also those with low indexes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.clock import Clock
from tarragon.base.resources import Resources, add_resources, fits
from tarragon.client.informer.cache_reader import CacheReader
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import CustomObject, Key
from tarragon.kube.scheduling.node_resources import node_allocatable
from tarragon.kube.scheduling.pod_requests import scheduling_request
from tarragon.operator.informers.candidates import min_and_requested
from tarragon.operator.informers.decode_cache import DecodeCache


@dataclass
class Periods:
    """The periods in which a condition held, by object."""

    total: float = 0.0
    longest: float = 0.0
    _since: dict[str, float] = field(default_factory=dict)

    def tell(self, at: float, of: Collection[str], among: Collection[str]) -> None:
        """From now on the condition holds for `of`, and not for the others in `among`."""
        for name in among:
            if name in of:
                self._since.setdefault(name, at)
            elif (since := self._since.pop(name, None)) is not None:
                self.total += at - since
                self.longest = max(self.longest, at - since)

    def end(self, at: float) -> None:
        self.tell(at, (), list(self._since))


@dataclass
class ObservedGang:
    """The observed state of a job."""

    minimum: Mapping[ReplicaType, int] = field(default_factory=dict)
    kept: Mapping[Replica, str] = field(default_factory=dict)
    finished: frozenset[Replica] = frozenset()
    is_over: bool = False
    replica_of: Callable[[str], Replica | None] = lambda _: None

    def short_of(self, kind: ReplicaType, present: Collection[Replica | None]) -> int:
        """How many replicas of the type are needed beyond those that are present."""
        return self.minimum[kind] - sum(replica is not None and replica.type == kind for replica in present)


class GangRecord:
    """A record of all changes, which must be added in order. Times are in seconds."""

    def __init__(self) -> None:
        self.partial = Periods()
        """Partial gangs: some replicas were bound while others had no assignment."""
        self.incomplete = Periods()
        """Gangs with assignments whose pods did not all exist yet."""
        self.displaced = Periods()
        """Gangs that had lost a node, until the replica had a new assignment."""
        self.leaving = Periods()
        """Pods of gangs without assignments, which must be deleted."""
        self.oversold: list[str] = []
        """Nodes on which running pods exceeded the capacity."""
        self.bound_beyond: list[str] = []
        """Nodes on which bound pods exceeded the capacity; the kubelet rejects the last one."""
        self.sizes: dict[str, list[int]] = defaultdict(list)
        """The admitted numbers of replicas of each job, in order."""
        self._gangs: dict[str, ObservedGang] = {}
        self._pods: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._on: dict[str, dict[Key, Resources]] = defaultdict(dict)
        self._runs_on: dict[str, dict[Key, Resources]] = defaultdict(dict)
        self._nodes: dict[str, Resources] = {}
        self._readings = DecodeCache({framework.kind: framework for framework in FRAMEWORKS})

    def node(self, at: float, key: Key, node: Node | None) -> None:
        if node is None:
            self._nodes.pop(key.name, None)
            self._on.pop(key.name, None)
            self._runs_on.pop(key.name, None)
            for uid in list(self._gangs):
                self._judge(at, uid)
        else:
            self._nodes[key.name] = node_allocatable(node)

    def job(self, at: float, framework: Framework, job: CustomObject) -> None:
        uid = job.metadata.uid
        taken = self._readings.decoded(framework.kind, job)
        if taken.job is None or taken.dialect is None:
            return
        read, names, status = taken.job, taken.dialect.names, decode_status(job.status)
        kept = {} if status.admission is None else status.admission.nodes
        self._gangs[uid] = ObservedGang(
            minimum={group.type: min_and_requested(read, group)[0] for group in read.replica_specs},
            kept=kept,
            finished=status.succeeded_replicas,
            is_over=status.phase.is_final,
            replica_of=lambda name: names.replica_of(read, name),
        )
        sizes = self.sizes[job.metadata.name]
        if kept and (not sizes or sizes[-1] != len(kept)):
            sizes.append(len(kept))
        self._judge(at, uid)

    def pod(self, at: float, key: Key, old: Pod | None, new: Pod | None) -> None:
        self._weigh(key, old, new)
        for pod in (old, new):
            owner = None if pod is None else pod.metadata.controller_ref
            if owner is None:
                continue
            if new is None:
                self._pods[owner.uid].pop(key.name, None)
            else:
                self._pods[owner.uid][key.name] = new
            self._judge(at, owner.uid)

    def end(self, at: float) -> None:
        for spans in (self.partial, self.incomplete, self.displaced, self.leaving):
            spans.end(at)

    def _weigh(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        """Update the usage of nodes. A finished or rejected pod uses nothing."""
        if old is not None and old.spec.node_name:
            self._on[old.spec.node_name].pop(key, None)
            self._runs_on[old.spec.node_name].pop(key, None)
        if new is None or not new.spec.node_name or new.is_finished:
            return
        self._add(self._on, key, new, self.bound_beyond)
        if new.status.phase == "Running":
            self._add(self._runs_on, key, new, self.oversold)

    def _add(self, held_on: dict[str, dict[Key, Resources]], key: Key, pod: Pod, overcommitted: list[str]) -> None:
        node = pod.spec.node_name
        held_on[node][key] = scheduling_request(pod.spec)
        capacity = self._nodes.get(node)
        held = add_resources(held_on[node].values())
        if capacity is not None and not fits(held, capacity):
            overcommitted.append(f"{node} by {key}: {held} of {dict(capacity)}")

    def _judge(self, at: float, uid: str) -> None:
        gang = self._gangs.get(uid, ObservedGang(is_over=True))
        held = {
            gang.replica_of(name): pod
            for name, pod in self._pods[uid].items()
            if pod.spec.node_name in self._nodes and not pod.is_finished and not pod.metadata.is_being_deleted
        }
        lacking = {} if gang.is_over or not held else self._lacking(gang, gang.finished | held.keys())
        assigned = [node for nodes in lacking.values() for node in nodes]
        lost = any(node not in self._nodes for node in assigned)
        without = any(len(nodes) < gang.short_of(kind, gang.finished | held.keys()) for kind, nodes in lacking.items())
        for spans, is_so in (
            (self.displaced, lost),
            (self.partial, without and not lost and bool(gang.kept)),
            (self.leaving, without and not gang.kept),
            (self.incomplete, bool(lacking) and not lost and not without),
        ):
            spans.tell(at, {uid} if is_so else (), [uid])

    def _lacking(self, gang: ObservedGang, present: Collection[Replica | None]) -> Mapping[ReplicaType, Sequence[str]]:
        """For each type of which too few replicas are present, the nodes to which others are assigned."""
        return {
            kind: [
                node for replica, node in gang.kept.items() if node and replica.type == kind and replica not in present
            ]
            for kind in gang.minimum
            if gang.short_of(kind, present) > 0
        }


def record_caches(
    record: GangRecord,
    clock: Clock,
    *,
    jobs: Mapping[Framework, CacheReader[CustomObject]],
    pods: CacheReader[Pod],
    nodes: CacheReader[Node],
) -> None:
    """Add all changes of these caches, which must still be empty, to a record."""

    def told_of(framework: Framework) -> Callable[[Key, CustomObject | None, CustomObject | None], None]:
        def on_change(_: Key, __: CustomObject | None, new: CustomObject | None) -> None:
            if new is not None:
                record.job(clock.monotonic(), framework, new)

        return on_change

    for framework, cache in jobs.items():
        cache.add_event_handler(told_of(framework))
    pods.add_event_handler(lambda key, old, new: record.pod(clock.monotonic(), key, old, new))
    nodes.add_event_handler(lambda key, _, new: record.node(clock.monotonic(), key, new))


def report(record: GangRecord) -> Iterator[str]:
    yield f"seconds with a partial gang: {record.partial.total:g}"
    yield f"seconds until all pods of a gang were created, at most: {record.incomplete.longest:.2f}"
    yield f"seconds until a replica whose node was lost was assigned again, at most: {record.displaced.longest:.2f}"
    yield f"seconds until pods without an assignment were gone, at most: {record.leaving.longest:.2f}"
    yield f"nodes oversold: {len(record.oversold)}"
    yield f"pods bound beyond the capacity of their node: {len(record.bound_beyond)}"
