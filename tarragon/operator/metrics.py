"""The operator's numbers as Prometheus reads them; docs/metrics.md is their reference.

Labels are bounded: kinds, phases, resources and codes, never the name of a job, a pod or a namespace.
"""

from __future__ import annotations

import platform
from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from tarragon.base.clock import Clock
from tarragon.cluster.counted import Call
from tarragon.cluster.live import Trouble
from tarragon.job.encoding import read_status
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.kube.meta import CustomObject, JsonObject, Key
from tarragon.operator.gather import World
from tarragon.operator.workqueue import WorkQueue
from tarragon.plan.obstacles import NODE_AWAY, NODE_FULL, UNSCHEDULABLE
from tarragon.plan.patience import MOVED_TOO_OFTEN
from tarragon.plan.step import NAME_TAKEN, REFUSED
from tarragon.plan.written import status_of, tarragon_of
from tarragon.scheduling.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_AWAY,
    PREEMPTED,
    QUOTA_EXCEEDED,
    RESOURCES_RELEASING,
    SCHEDULER_ERROR,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # half as many series, and nobody asks for them

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

NEW = "New"
"""The phase of a job that the operator has not written to yet."""
GONE = ""
PHASES = (NEW, "Waiting", "Starting", *(phase.value for phase in Phase if phase is not Phase.CREATED))
OTHER = "Other"
WAITS = (
    NEVER_FITS,
    NODES_AWAY,
    INSUFFICIENT_RESOURCES,
    BEHIND_OTHERS,
    RESOURCES_RELEASING,
    QUOTA_EXCEEDED,
    PREEMPTED,
    SCHEDULER_ERROR,
    REFUSED,
    NAME_TAKEN,
    UNSCHEDULABLE,
    NODE_FULL,
    NODE_AWAY,
    MOVED_TOO_OFTEN,
    OTHER,
)

_SOON = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. A counter's name is scraped with `_total` behind it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = _SOON


BUILD = Definition("tarragon_build_info", "gauge", "Always 1", ("version", "python"))
LEADER = Definition("tarragon_is_leader", "gauge", "1 while this operator is the one that acts")
JOBS = Definition("tarragon_jobs", "gauge", "Jobs there are; told by the leader", ("kind", "phase"))
WAITING = Definition(
    "tarragon_jobs_waiting", "gauge", "Jobs that wait for admission, by the code of their wait", ("kind", "code")
)
QUEUE_TIME = Definition(
    "tarragon_job_queue_seconds", "histogram", "From a job's queueing to its admission", ("kind",), _LONG
)
START_TIME = Definition(
    "tarragon_job_start_seconds", "histogram", "From a job's admission to its first Running", ("kind",), _LONG
)
TURNS = {
    "created": Definition("tarragon_jobs_created", "counter", "Jobs whose first status was written", ("kind",)),
    "deleted": Definition("tarragon_jobs_deleted", "counter", "Jobs that are gone", ("kind",)),
    "succeeded": Definition("tarragon_jobs_succeeded", "counter", "Jobs that have succeeded", ("kind",)),
    "failed": Definition("tarragon_jobs_failed", "counter", "Jobs that have failed", ("kind",)),
    "restarted": Definition("tarragon_jobs_restarted", "counter", "Times a job had to restart replicas", ("kind",)),
}
RECONCILES = Definition(
    "tarragon_reconcile_seconds", "histogram", "One look at one job, with the writes that followed", ("kind",)
)
ERRORS = Definition(
    "tarragon_reconcile_errors", "counter", "Reconciles that failed and are tried again", ("kind", "reason")
)
ROUNDS = Definition("tarragon_admission_round_seconds", "histogram", "One round of admission, with its writes")
ROUND_ERRORS = Definition("tarragon_admission_errors", "counter", "Rounds of admission that failed", ("reason",))
DECIDED = Definition(
    "tarragon_scheduler_decisions",
    "counter",
    "Decisions about jobs that were written; code: why it waits, if it does",
    ("decision", "code"),
)
REFUSED_DECISIONS = Definition(
    "tarragon_scheduler_refused_decisions",
    "counter",
    "Decisions that no policy may make; `policy`: rounds in which it failed altogether",
    ("decision",),
)
QUEUES_REFUSED = Definition(
    "tarragon_queues_file_refused", "gauge", "1 while the file of queues can't be meant, and what it said before counts"
)
DEPTH = Definition("tarragon_queue_depth", "gauge", "Jobs that are due for a reconcile")
OLDEST = Definition("tarragon_queue_oldest_seconds", "gauge", "For how long the first of them has been due")
RETRYING = Definition("tarragon_queue_retrying", "gauge", "Jobs whose last reconcile failed")
CALLS = Definition(
    "tarragon_api_call_seconds",
    "histogram",
    "Calls to the API server that have one answer; code 0: given up before it came",
    ("verb", "resource", "code"),
)
WATCHES = Definition("tarragon_watches_started", "counter", "Watches asked for", ("resource",))
WATCH_ENDS = Definition(
    "tarragon_watches_ended", "counter", "Watches that have ended; code 200: in good order", ("resource", "code")
)
WATCH_EVENTS = Definition("tarragon_watch_events", "counter", "What watches brought, bookmarks included", ("resource",))
HELD = Definition("tarragon_cache_objects", "gauge", "Objects held in memory", ("resource",))
TROUBLES = Definition(
    "tarragon_cache_troubles", "counter", "Failures to list or watch, and objects that can't be read", ("resource",)
)

# What tf-operator 1.0 called the same, for dashboards that are there already.
TF_LEADER = Definition("tf_operator_is_leader", "gauge", "As tarragon_is_leader")
TF_TURNS = {
    "created": Definition("tf_operator_jobs_created", "counter", "As tarragon_jobs_created_total, of TFJobs"),
    "deleted": Definition("tf_operator_jobs_deleted", "counter", "As tarragon_jobs_deleted_total, of TFJobs"),
    "succeeded": Definition("tf_operator_jobs_successful", "counter", "As tarragon_jobs_succeeded_total, of TFJobs"),
    "failed": Definition("tf_operator_jobs_failed", "counter", "As tarragon_jobs_failed_total, of TFJobs"),
    "restarted": Definition("tf_operator_jobs_restarted", "counter", "As tarragon_jobs_restarted_total, of TFJobs"),
}

DEFINITIONS = (
    *(JOBS, WAITING, QUEUE_TIME, START_TIME, *TURNS.values()),
    *(RECONCILES, ERRORS, DEPTH, OLDEST, RETRYING, ROUNDS, ROUND_ERRORS, DECIDED, REFUSED_DECISIONS),
    QUEUES_REFUSED,
    *(CALLS, WATCHES, WATCH_ENDS, WATCH_EVENTS, HELD, TROUBLES),
    *(LEADER, BUILD, TF_LEADER, *TF_TURNS.values()),
)


class Metrics:
    """Has a registry of its own, not the process's: two operators in one process would count into one another."""

    def __init__(self, clock: Clock, version: str) -> None:
        self._clock = clock
        self._leads = False
        self._phases: Count[tuple[str, str]] = Count()
        self._waits: Count[tuple[str, str]] = Count()
        self._world: World | None = None
        self._queue: WorkQueue[tuple[str, Key]] | None = None
        self._registry = CollectorRegistry()
        self._gauge(BUILD).labels(version, platform.python_version()).set(1)
        self._leader = [self._gauge(LEADER), self._gauge(TF_LEADER)]
        self._queue_time = self._histogram(QUEUE_TIME)
        self._start_time = self._histogram(START_TIME)
        self._reconciles = self._histogram(RECONCILES)
        self._errors = self._counter(ERRORS)
        self._rounds = self._histogram(ROUNDS)
        self._round_errors = self._counter(ROUND_ERRORS)
        self._decided = self._counter(DECIDED)
        self._refused = self._counter(REFUSED_DECISIONS)
        self._queues_refused = self._gauge(QUEUES_REFUSED)
        self._calls = self._histogram(CALLS)
        self._watches = self._counter(WATCHES)
        self._watch_ends = self._counter(WATCH_ENDS)
        self._watch_events = self._counter(WATCH_EVENTS)
        self._troubles = self._counter(TROUBLES)
        self._turns = {turn: self._counter(definition) for turn, definition in TURNS.items()}
        self._tf_turns = {turn: self._counter(definition) for turn, definition in TF_TURNS.items()}
        self._registry.register(_Now(self._now))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """What /metrics answers, as CONTENT_TYPE."""
        return generate_latest(self._registry)

    def queues_refused(self, is_refused: bool) -> None:  # noqa: FBT001 - the claim that is noted
        """What the last edit of the file of queues came to."""
        self._queues_refused.set(1 if is_refused else 0)

    def leads(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        """Jobs are counted by the operator that acts: a standby sees them, too, and sums would be doubled."""
        self._leads = acts
        for gauge in self._leader:
            gauge.set(1 if acts else 0)

    # Told by the operator (Meter)

    def attach(self, world: World, queue: WorkQueue[tuple[str, Key]]) -> None:
        self._world = world
        self._queue = queue
        for kind, cache in world.jobs.items():
            cache.subscribe(partial(self._job_changed, kind))
        for each in world.caches:
            each.on_trouble(self._trouble)

    def reconciled(self, kind: str, seconds: float, error: str) -> None:
        self._reconciles.labels(kind).observe(seconds)
        if error:
            self._errors.labels(kind, error).inc()

    def decided(self, seconds: float, error: str) -> None:
        self._rounds.observe(seconds)
        if error:
            self._round_errors.labels(error).inc()

    def told(self, decision: str, code: str) -> None:
        self._decided.labels(decision, code if not code or code in WAITS else OTHER).inc()

    def refused(self, decision: str) -> None:
        self._refused.labels(decision).inc()

    # Told by the port (Counter)

    def called(self, call: Call) -> None:
        self._calls.labels(call.verb, call.resource, str(call.code)).observe(call.seconds)

    def watch_began(self, resource: str) -> None:
        self._watches.labels(resource).inc()

    def watch_brought(self, resource: str) -> None:
        self._watch_events.labels(resource).inc()

    def watch_ended(self, resource: str, code: int) -> None:
        self._watch_ends.labels(resource, str(code)).inc()

    # Jobs

    def _trouble(self, trouble: Trouble) -> None:
        if self._world is None or not self._world.is_to_be_expected(trouble):
            self._troubles.labels(trouble.resource).inc()

    def _job_changed(self, kind: str, _: Key, old: CustomObject | None, new: CustomObject | None) -> None:
        before, after = _told(old), _told(new)
        if before == after:
            return
        self._phases[kind, before.phase] -= 1
        self._phases[kind, after.phase] += 1
        self._waits[kind, before.wait] -= 1
        self._waits[kind, after.wait] += 1
        if self._leads:
            self._turn(kind, before.phase, after.phase)
            if old is not None and new is not None:
                self._times(kind, read_status(old.status), read_status(new.status))

    def _turn(self, kind: str, before: str, after: str) -> None:
        turns = {
            "created": before == NEW and after not in {NEW, GONE},
            "deleted": after == GONE,
            "succeeded": before not in {GONE, after} and after == Phase.SUCCEEDED,
            "failed": before not in {GONE, after} and after == Phase.FAILED,
            "restarted": before not in {GONE, after} and after == Phase.RESTARTING,
        }
        for turn, happened in turns.items():
            if happened:
                self._turns[turn].labels(kind).inc()
                if kind == "TFJob":
                    self._tf_turns[turn].inc()

    def _times(self, kind: str, before: JobStatus, after: JobStatus) -> None:
        """Of jobs that wait for us. After a restart or a resumption a job may start once more: that counts anew."""
        admission = after.admission
        if admission is None or admission.admitted is None:
            return
        if not before.is_admitted:
            self._queue_time.labels(kind).observe((admission.admitted - admission.queued).total_seconds())
        if before.phase is Phase.CREATED and after.phase is Phase.RUNNING:
            self._start_time.labels(kind).observe((self._clock.now() - admission.admitted).total_seconds())

    # Read when they are asked for

    def _now(self) -> Iterator[Metric]:
        jobs, waiting, held = _family(JOBS), _family(WAITING), _family(HELD)
        depth, retrying, oldest = _family(DEPTH), _family(RETRYING), _family(OLDEST)
        if self._world is not None and self._queue is not None:
            for kind in self._world.jobs if self._leads else ():
                for phase in PHASES:
                    jobs.add_metric((kind, phase), self._phases[kind, phase])
                for code in WAITS:
                    waiting.add_metric((kind, code), self._waits[kind, code])
            for cache in self._world.caches:
                held.add_metric((cache.resource.full_name,), len(cache.objects))
            now = self._clock.monotonic()
            due = self._queue.next_due()
            depth.add_metric((), self._queue.due(now))
            retrying.add_metric((), self._queue.retrying)
            oldest.add_metric((), 0.0 if due is None else max(0.0, now - due))
        yield from (jobs, waiting, held, depth, retrying, oldest)

    def _counter(self, definition: Definition) -> Counter:
        return Counter(definition.name, definition.text, definition.labels, registry=self._registry)

    def _gauge(self, definition: Definition) -> Gauge:
        return Gauge(definition.name, definition.text, definition.labels, registry=self._registry)

    def _histogram(self, definition: Definition) -> Histogram:
        return Histogram(
            definition.name, definition.text, definition.labels, buckets=definition.buckets, registry=self._registry
        )


def _family(definition: Definition) -> GaugeMetricFamily:
    return GaugeMetricFamily(definition.name, definition.text, labels=definition.labels)


class _Now(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


@dataclass(frozen=True, slots=True)
class _Told:
    """What of a job its status tells in words; reading all of it at each change would be dear."""

    phase: str = GONE
    wait: str = ""
    admitted: str = ""


def _told(job: CustomObject | None) -> _Told:
    """Users can edit a status: a word that is not among our labels does not become one."""
    if job is None:
        return _Told()
    ours = tarragon_of(status_of(job))
    state = ours.get("state")
    admission = _part(ours, "admission")
    # An admitted gang's wait says why it does not grow.
    code = None if "admitted" in admission else _part(admission, "wait").get("code")
    return _Told(
        phase=state if state in PHASES else NEW,
        wait="" if code is None else code if code in WAITS else OTHER,
        admitted=str(admission.get("admitted", "")),
    )


def _part(fields: JsonObject, name: str) -> JsonObject:
    found = fields.get(name)
    return found if isinstance(found, Mapping) else {}
