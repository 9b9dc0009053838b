"""Builds the `View` from the watched objects and the log lines. Makes no requests to the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.base.clock import Clock
from tarragon.base.resources import CPU, MEMORY
from tarragon.cli.follow.changes import replica_text
from tarragon.cli.jobview.gpus import part_of_gpu
from tarragon.cli.jobview.jobs import pods_of, unread_log
from tarragon.cli.jobview.progress import RUNNING, SUCCEEDED, ReplicaProgress, newest_pods
from tarragon.cli.jobview.queueing import queue_positions
from tarragon.cli.jobview.rows import training
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.top.job_rows import JobKey, JobRow, filter_and_sort
from tarragon.cli.top.log_tails import LogSource, LogTails
from tarragon.cli.top.metrics_line import training_progress
from tarragon.cli.top.node_rows import NodeRow, format_bytes, format_cpu, node_rows
from tarragon.cli.top.page_state import PageState, SelectableRows
from tarragon.cli.top.view import ReplicaRow, View
from tarragon.cli.top.watched_state import WatchedState
from tarragon.cli.top.watches import ClusterWatch
from tarragon.job.model import Replica
from tarragon.job.progress import Source
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key

SORT_INTERVAL_FACTOR = 20
"""Sorting may take 1/20 of the time: after a slow sort, the next one waits 20 times as long as it took."""
OLD_SECONDS = 60.0
"""After this time without news, what was read of a running program's log yields to its newest line."""


@dataclass(slots=True)
class SortedRows:
    """The sorted and filtered rows, cached because there may be 10,000: sorted again only after a change."""

    clock: Clock
    entries: Sequence[JobRow] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    queue: Mapping[JobKey, int] = field(default_factory=dict)
    keys: Sequence[JobKey] = ()
    index_of: Mapping[JobKey, int] = field(default_factory=dict)
    _order: tuple[object, ...] = ()
    _version: int = -1
    _not_before: float = 0.0

    def refresh(self, scene: WatchedState, place: PageState) -> None:
        """Sort again if needed. A changed filter or sort order takes effect at once, changed jobs with a delay."""
        order, now = (id(scene), place.filter, place.sort, place.is_reversed), self.clock.monotonic()
        if order == self._order and (scene.version == self._version or now < self._not_before):
            return
        self._order, self._version = order, scene.version
        entries = scene.jobs.values()
        self.entries = filter_and_sort(entries, place.filter, place.sort, is_reversed=place.is_reversed)
        self.counts = scene.count_by_state()
        self.queue = queue_positions(each.job for each in entries)
        self.keys = [each.key for each in self.entries]
        self.index_of = {key: place for place, key in enumerate(self.keys)}
        done = self.clock.monotonic()
        self._not_before = done + SORT_INTERVAL_FACTOR * (done - now)


class ViewBuilder:
    """Builds the view for each frame."""

    def __init__(self, target: ClusterTarget, namespace: str, voices: LogTails, clock: Clock) -> None:
        self._where = target
        self._namespace = namespace
        self._voices = voices
        self._sorted = SortedRows(clock)
        self._clock = clock

    def entry(self, scene: WatchedState, place: PageState) -> JobRow | None:
        return scene.jobs.get(place.job) if place.job is not None else None

    def rows(self, scene: WatchedState, place: PageState, page: int) -> SelectableRows:
        self._sorted.refresh(scene, place)
        each = self.entry(scene, place)
        replicas = len(scene.progress(each).replicas) if each is not None else 0
        return SelectableRows(
            jobs=self._sorted.keys, index_of=self._sorted.index_of, replicas=replicas, nodes=len(scene.nodes), page=page
        )

    def view(self, watches: ClusterWatch, place: PageState, note: str) -> View:
        scene = watches.state
        self._sorted.refresh(scene, place)
        each = self.entry(scene, place)
        return View(
            target=self._where.name,
            namespace=self._namespace,
            entries=self._sorted.entries,
            index_of=self._sorted.index_of,
            counts=self._sorted.counts,
            undecoded=len(scene.undecoded),
            queue=self._sorted.queue,
            replicas=list(self._replicas(scene, each)) if each is not None else (),
            nodes=_machines(scene),
            remarks=list(scene.forbidden.values()),
            error=watches.error,
            is_loaded=watches.is_complete,
            note=note,
            hint=f"Submit one with `{self._where.command_prefix.program} run FILE`.",
        )

    def training_progress(self, scene: WatchedState, shown: Sequence[JobRow]) -> Mapping[JobKey, str]:
        """Return the training progress of each shown job."""
        return {each.key: self._progress_of(scene, each) for each in shown}

    def _progress_of(self, scene: WatchedState, each: JobRow) -> str:
        """What the program has reported, else what it prints. Its log is newer than what was read of it minutes ago."""
        recorded, now = each.job.status.progress, self._clock.now()
        if recorded is not None and not recorded.is_of_earlier_pod:
            is_old = each.state == RUNNING and (now - recorded.updated_at).total_seconds() > OLD_SECONDS
            if recorded.source is Source.REPORT or not is_old:
                return training(each.job, now)
        leader = leading_replica(scene, each)
        printed = "" if leader is None else training_progress(unread_log(each.job), self._voices.lines(leader[1]), now)
        return printed or training(each.job, now)

    def log_sources(self, scene: WatchedState, shown: Sequence[JobRow], place: PageState) -> Iterator[LogSource]:
        """Yield the replicas whose logs are read: all of the selected job, and the leader of each shown job."""
        each = self.entry(scene, place)
        if each is not None:
            for replica, pod in _pods(scene, each).items():
                yield replica, pod, each.job.framework.main_container
        for other in shown:
            has_log = other.state in {RUNNING, SUCCEEDED} and other is not each
            if has_log and (found := leading_replica(scene, other)) is not None:
                yield *found, other.job.framework.main_container

    def _replicas(self, scene: WatchedState, each: JobRow) -> Iterator[ReplicaRow]:
        pods = _pods(scene, each)
        for member in scene.progress(each).replicas:
            pod = pods.get(member.replica)
            lines = self._voices.lines(pod) if pod is not None else ()
            used = scene.usage.get(f"{each.namespace}/{member.pod}", {})
            yield ReplicaRow(
                name=member.name,
                type=member.replica.type.lower(),
                state=member.state,
                state_text=replica_text(_without_restarts(member)),
                restarts=member.restarts,
                node=member.node,
                cpu=format_cpu(used[CPU]) if CPU in used else "-",
                memory=format_bytes(used[MEMORY]) if MEMORY in used else "-",
                gpu="" if pod is None else part_of_gpu(pod),
                last_line=next((line.strip() for line in reversed(lines) if line.strip()), ""),
            )


def leading_replica(scene: WatchedState, each: JobRow) -> tuple[Replica, Pod] | None:
    """Return the chief, whose end is the job's end, or else the first replica."""
    pods = _pods(scene, each)
    chief = each.job.job.chief if each.job.job is not None else None
    found = chief if chief in pods else min(pods, default=None)
    return (found, pods[found]) if found is not None else None


def _pods(scene: WatchedState, each: JobRow) -> Mapping[Replica, Pod]:
    pods: Mapping[Key, Pod] = scene.pods.get(each.job.as_owner, {})
    return newest_pods(pods_of(each.job, pods.values()))


def _machines(scene: WatchedState) -> Sequence[NodeRow]:
    return node_rows(scene.nodes.values(), scene.requests, scene.usage)


def _without_restarts(member: ReplicaProgress) -> ReplicaProgress:
    """Return the replica without its restarts, which have their own column."""
    return replace(member, restarts=0)
