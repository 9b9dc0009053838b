"""The Prometheus registry of the operator: receives measurements and renders /metrics."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tarragon.base.clock import Clock
from tarragon.client.informer.cache_reader import CacheError, LostWatch
from tarragon.client.middleware.instrumented import CallResult
from tarragon.client.workqueue import WorkQueue
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.metrics.definitions import (
    BUILD,
    CACHE_ERRORS,
    CACHED_OBJECTS,
    CALLS,
    CYCLE_ERRORS,
    CYCLES,
    DECISION_LABELS,
    DECISIONS,
    ERRORS,
    LEADER,
    ORIGINAL_LEADERS,
    OTHER,
    POLICY_FAILED,
    PROGRESS_REPORTS,
    PROGRESS_WRITES,
    QUEUE_AGE,
    QUEUE_DEPTH,
    QUEUE_RETRYING,
    QUEUES_REFUSED,
    READY,
    RECONCILES,
    REFUSED_ADMISSIONS,
    REFUSED_DECISIONS,
    UNEXPECTED_ERROR,
    WAIT_CODES,
    WATCH_ENDS,
    WATCH_EVENTS,
    WATCHES,
    WATCHES_LOST,
)
from tarragon.operator.metrics.instruments import OnScrapeCollector, counter, gauge, gauge_family, histogram
from tarragon.operator.metrics.job_metrics import JobMetrics

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """Uses its own registry instead of the global one, so that two operators in one process do not share counters."""

    def __init__(self, clock: Clock, version: str) -> None:
        self._clock = clock
        self._informers: Informers | None = None
        self._queue: WorkQueue[tuple[str, Key]] | None = None
        self._registry = registry = CollectorRegistry()
        gauge(BUILD, registry).labels(version, platform.python_version()).set(1)
        self._leader_gauges = [gauge(definition, registry) for definition in (LEADER, *ORIGINAL_LEADERS)]
        self._reconciles = histogram(RECONCILES, registry)
        self._errors = counter(ERRORS, registry)
        self._rounds = histogram(CYCLES, registry)
        self._round_errors = counter(CYCLE_ERRORS, registry)
        self._decisions = counter(DECISIONS, registry)
        self._refused_decisions = counter(REFUSED_DECISIONS, registry)
        self._refused_admissions = counter(REFUSED_ADMISSIONS, registry)
        self._queues_refused = gauge(QUEUES_REFUSED, registry)
        self._calls = histogram(CALLS, registry)
        self._watches = counter(WATCHES, registry)
        self._watch_ends = counter(WATCH_ENDS, registry)
        self._watches_lost = counter(WATCHES_LOST, registry)
        self._watch_events = counter(WATCH_EVENTS, registry)
        self._troubles = counter(CACHE_ERRORS, registry)
        self._progress_reports = counter(PROGRESS_REPORTS, registry)
        self._progress_writes = counter(PROGRESS_WRITES, registry)
        self._job_metrics = JobMetrics(clock, registry)
        registry.register(OnScrapeCollector(self._collect))
        ProcessCollector(registry=registry)

    def render(self) -> bytes:
        """The body of /metrics, of type CONTENT_TYPE."""
        return generate_latest(self._registry)

    def queues_file_checked(self, is_refused: bool) -> None:  # noqa: FBT001 - the claim that is noted
        """The last edit of the queues file was invalid, or valid."""
        self._queues_refused.set(1 if is_refused else 0)

    # Reported by the operator (Meter)

    def attach(self, informers: Informers, queue: WorkQueue[tuple[str, Key]]) -> None:
        self._informers = informers
        self._queue = queue
        self._job_metrics.attach(informers.jobs)
        for each in informers.caches:
            each.on_error(self._count_trouble)
            each.on_lost_watch(self._count_lost_watch)
        self._begin_at_zero(informers.jobs)

    def leadership_changed(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        self._job_metrics.leadership_changed(acts)
        for each in self._leader_gauges:
            each.set(1 if acts else 0)

    def reconcile_finished(self, kind: str, seconds: float, error: str) -> None:
        self._reconciles.labels(kind).observe(seconds)
        if error:
            self._errors.labels(kind, error).inc()

    def cycle_finished(self, seconds: float, error: str) -> None:
        self._rounds.observe(seconds)
        if error:
            self._round_errors.labels(error).inc()

    def decision_written(self, decision: str, code: str) -> None:
        self._decisions.labels(decision, code if not code or code in WAIT_CODES else OTHER).inc()

    def admission_rejected(self) -> None:
        self._refused_admissions.inc()

    def decision_rejected(self, decision: str) -> None:
        self._refused_decisions.labels(decision).inc()

    def progress_reported(self, result: str) -> None:
        self._progress_reports.labels(result).inc()

    def progress_written(self, result: str) -> None:
        self._progress_writes.labels(result).inc()

    # Reported by the API client (Counter)

    def on_call(self, call: CallResult) -> None:
        self._calls.labels(call.verb, call.resource, str(call.code)).observe(call.seconds)

    def on_watch_started(self, resource: str) -> None:
        self._watches.labels(resource).inc()

    def on_watch_event(self, resource: str) -> None:
        self._watch_events.labels(resource).inc()

    def on_watch_ended(self, resource: str, code: int) -> None:
        self._watch_ends.labels(resource, str(code)).inc()

    def _begin_at_zero(self, kinds: Iterable[str]) -> None:
        """Report what must never happen from the beginning: the first time would be no increase of a new series."""
        for kind in kinds:
            self._errors.labels(kind, UNEXPECTED_ERROR)
        self._round_errors.labels(UNEXPECTED_ERROR)
        for decision in (*DECISION_LABELS.values(), POLICY_FAILED):
            self._refused_decisions.labels(decision)

    def _count_trouble(self, trouble: CacheError) -> None:
        if self._informers is None or not self._informers.is_expected_error(trouble):
            self._troubles.labels(trouble.resource).inc()

    def _count_lost_watch(self, lost: LostWatch) -> None:
        self._watches_lost.labels(lost.resource, lost.reason).inc()

    def _collect(self) -> Iterator[Metric]:
        """Metrics that are computed at each scrape."""
        yield from self._job_metrics.collect()
        ready, held, depth, retrying, oldest = (
            gauge_family(READY),
            gauge_family(CACHED_OBJECTS),
            gauge_family(QUEUE_DEPTH),
            gauge_family(QUEUE_RETRYING),
            gauge_family(QUEUE_AGE),
        )
        if self._informers is not None and self._queue is not None:
            ready.add_metric((), 0 if self._informers.unsynced_kinds else 1)
            for cache in self._informers.caches:
                held.add_metric((cache.resource.full_name,), len(cache.objects))
            now = self._clock.monotonic()
            due = self._queue.next_due()
            depth.add_metric((), self._queue.count_due(now))
            retrying.add_metric((), self._queue.count_retrying)
            oldest.add_metric((), 0.0 if due is None else max(0.0, now - due))
        yield from (ready, held, depth, retrying, oldest)
