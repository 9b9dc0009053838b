"""Builds the `View` from the watched objects and the log lines. Makes no requests to the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.base.clock import Clock
from tarragon.base.resources import CPU, MEMORY
from tarragon.cli.follow.changes import described
from tarragon.cli.jobview.jobs import pods_of
from tarragon.cli.jobview.progress import RUNNING, SUCCEEDED, Member, newest
from tarragon.cli.jobview.queueing import positions
from tarragon.cli.jobview.target import Target
from tarragon.cli.top.entries import Entry, JobKey, chosen
from tarragon.cli.top.known import Scene
from tarragon.cli.top.machines import Machine, cores, machines, size
from tarragon.cli.top.sayings import progress
from tarragon.cli.top.state import Place, Rows
from tarragon.cli.top.view import ReplicaRow, View
from tarragon.cli.top.voices import Speaker, Voices
from tarragon.cli.top.watches import Watches
from tarragon.job.model import Replica
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key

SHARE = 20
"""Sorting may take 1/20 of the time: after a slow sort, the next one waits 20 times as long as it took."""


@dataclass(slots=True)
class Sorted:
    """The sorted and filtered rows, cached because there may be 10,000: sorted again only after a change."""

    clock: Clock
    entries: Sequence[Entry] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    queue: Mapping[JobKey, int] = field(default_factory=dict)
    keys: Sequence[JobKey] = ()
    at: Mapping[JobKey, int] = field(default_factory=dict)
    _order: tuple[object, ...] = ()
    _version: int = -1
    _not_before: float = 0.0

    def follow(self, scene: Scene, place: Place) -> None:
        """Sort again if needed. A changed filter or sort order takes effect at once, changed jobs with a delay."""
        order, now = (id(scene), place.wanted, place.sort, place.is_reversed), self.clock.monotonic()
        if order == self._order and (scene.version == self._version or now < self._not_before):
            return
        self._order, self._version = order, scene.version
        entries = scene.jobs.values()
        self.entries = chosen(entries, place.wanted, place.sort, is_reversed=place.is_reversed)
        self.counts = scene.counts()
        self.queue = positions(each.job for each in entries)
        self.keys = [each.key for each in self.entries]
        self.at = {key: place for place, key in enumerate(self.keys)}
        done = self.clock.monotonic()
        self._not_before = done + SHARE * (done - now)


class Composer:
    """Builds the view for each frame."""

    def __init__(self, where: Target, namespace: str, voices: Voices, clock: Clock) -> None:
        self._where = where
        self._namespace = namespace
        self._voices = voices
        self._sorted = Sorted(clock)

    def entry(self, scene: Scene, place: Place) -> Entry | None:
        return scene.jobs.get(place.job) if place.job is not None else None

    def rows(self, scene: Scene, place: Place, page: int) -> Rows:
        self._sorted.follow(scene, place)
        each = self.entry(scene, place)
        replicas = len(scene.progress(each).members) if each is not None else 0
        return Rows(jobs=self._sorted.keys, at=self._sorted.at, replicas=replicas, nodes=len(scene.nodes), page=page)

    def view(self, watches: Watches, place: Place, note: str) -> View:
        scene = watches.scene
        self._sorted.follow(scene, place)
        each = self.entry(scene, place)
        return View(
            target=self._where.name,
            namespace=self._namespace,
            entries=self._sorted.entries,
            at=self._sorted.at,
            counts=self._sorted.counts,
            unread=len(scene.unread),
            queue=self._sorted.queue,
            replicas=list(self._replicas(scene, each)) if each is not None else (),
            machines=_machines(scene),
            remarks=list(scene.refusals.values()),
            trouble=watches.trouble,
            is_complete=watches.is_complete,
            note=note,
            hint=f"Submit one with `{self._where.prompt.program} run FILE`.",
        )

    def said(self, scene: Scene, shown: Sequence[Entry]) -> Mapping[JobKey, str]:
        """Return the training progress of each shown job, from the log of its leader."""
        leaders = ((each.key, leader(scene, each)) for each in shown)
        return {key: progress(self._voices.lines(found[1])) for key, found in leaders if found is not None}

    def speakers(self, scene: Scene, shown: Sequence[Entry], place: Place) -> Iterator[Speaker]:
        """Yield the replicas whose logs are read: all of the selected job, and the leader of each shown job."""
        each = self.entry(scene, place)
        if each is not None:
            for replica, pod in _pods(scene, each).items():
                yield replica, pod, each.job.framework.main_container
        for other in shown:
            has_log = other.state in {RUNNING, SUCCEEDED} and other is not each
            if has_log and (found := leader(scene, other)) is not None:
                yield *found, other.job.framework.main_container

    def _replicas(self, scene: Scene, each: Entry) -> Iterator[ReplicaRow]:
        pods = _pods(scene, each)
        for member in scene.progress(each).members:
            pod = pods.get(member.replica)
            lines = self._voices.lines(pod) if pod is not None else ()
            used = scene.usage.get(f"{each.namespace}/{member.pod}", {})
            yield ReplicaRow(
                name=member.name,
                type=member.replica.type.word,
                state=described(_without_restarts(member)),
                restarts=member.restarts,
                node=member.node,
                cpu=cores(used[CPU]) if CPU in used else "-",
                memory=size(used[MEMORY]) if MEMORY in used else "-",
                says=next((line.strip() for line in reversed(lines) if line.strip()), ""),
            )


def leader(scene: Scene, each: Entry) -> tuple[Replica, Pod] | None:
    """Return the chief, whose end is the job's end, or else the first replica."""
    pods = _pods(scene, each)
    chief = each.job.job.chief if each.job.job is not None else None
    found = chief if chief in pods else min(pods, default=None)
    return (found, pods[found]) if found is not None else None


def _pods(scene: Scene, each: Entry) -> Mapping[Replica, Pod]:
    pods: Mapping[Key, Pod] = scene.pods.get(each.job.as_owner, {})
    return newest(pods_of(each.job, pods.values()))


def _machines(scene: Scene) -> Sequence[Machine]:
    return machines(scene.nodes.values(), scene.requests, scene.usage)


def _without_restarts(member: Member) -> Member:
    """Return the replica without its restarts, which have their own column."""
    return replace(member, restarts=0)
