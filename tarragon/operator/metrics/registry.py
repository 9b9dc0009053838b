"""The Prometheus registry of the operator: receives measurements and renders /metrics."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tarragon.base.clock import Clock
from tarragon.client.informer.cache_reader import Trouble
from tarragon.client.middleware.counted import Call
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import World
from tarragon.operator.metrics.definitions import (
    BUILD,
    CALLS,
    DECIDED,
    DEPTH,
    ERRORS,
    HELD,
    LEADER,
    OLDEST,
    OTHER,
    QUEUES_REFUSED,
    RECONCILES,
    REFUSED_ADMISSIONS,
    REFUSED_DECISIONS,
    RETRYING,
    ROUND_ERRORS,
    ROUNDS,
    TF_LEADER,
    TROUBLES,
    WAITS,
    WATCH_ENDS,
    WATCH_EVENTS,
    WATCHES,
)
from tarragon.operator.metrics.instruments import Asked, counter, family, gauge, histogram
from tarragon.operator.metrics.job_metrics import Census
from tarragon.operator.queue.workqueue import WorkQueue

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """Uses its own registry instead of the global one, so that two operators in one process do not share counters."""

    def __init__(self, clock: Clock, version: str) -> None:
        self._clock = clock
        self._informers: World | None = None
        self._queue: WorkQueue[tuple[str, Key]] | None = None
        self._registry = registry = CollectorRegistry()
        gauge(BUILD, registry).labels(version, platform.python_version()).set(1)
        self._leader_gauges = [gauge(LEADER, registry), gauge(TF_LEADER, registry)]
        self._reconciles = histogram(RECONCILES, registry)
        self._errors = counter(ERRORS, registry)
        self._rounds = histogram(ROUNDS, registry)
        self._round_errors = counter(ROUND_ERRORS, registry)
        self._decisions = counter(DECIDED, registry)
        self._refused_decisions = counter(REFUSED_DECISIONS, registry)
        self._refused_admissions = counter(REFUSED_ADMISSIONS, registry)
        self._queues_refused = gauge(QUEUES_REFUSED, registry)
        self._calls = histogram(CALLS, registry)
        self._watches = counter(WATCHES, registry)
        self._watch_ends = counter(WATCH_ENDS, registry)
        self._watch_events = counter(WATCH_EVENTS, registry)
        self._troubles = counter(TROUBLES, registry)
        self._job_metrics = Census(clock, registry)
        registry.register(Asked(self._collect))
        ProcessCollector(registry=registry)

    def text(self) -> bytes:
        """The body of /metrics, of type CONTENT_TYPE."""
        return generate_latest(self._registry)

    def queues_refused(self, is_refused: bool) -> None:  # noqa: FBT001 - the claim that is noted
        """The last edit of the queues file was invalid, or valid."""
        self._queues_refused.set(1 if is_refused else 0)

    # Reported by the operator (Meter)

    def attach(self, informers: World, queue: WorkQueue[tuple[str, Key]]) -> None:
        self._informers = informers
        self._queue = queue
        self._job_metrics.attach(informers.jobs)
        for each in informers.caches:
            each.on_trouble(self._count_trouble)

    def leads(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        self._job_metrics.leads(acts)
        for each in self._leader_gauges:
            each.set(1 if acts else 0)

    def reconciled(self, kind: str, seconds: float, error: str) -> None:
        self._reconciles.labels(kind).observe(seconds)
        if error:
            self._errors.labels(kind, error).inc()

    def decided(self, seconds: float, error: str) -> None:
        self._rounds.observe(seconds)
        if error:
            self._round_errors.labels(error).inc()

    def told(self, decision: str, code: str) -> None:
        self._decisions.labels(decision, code if not code or code in WAITS else OTHER).inc()

    def refused_admission(self) -> None:
        self._refused_admissions.inc()

    def refused(self, decision: str) -> None:
        self._refused_decisions.labels(decision).inc()

    # Reported by the API client (Counter)

    def called(self, call: Call) -> None:
        self._calls.labels(call.verb, call.resource, str(call.code)).observe(call.seconds)

    def watch_began(self, resource: str) -> None:
        self._watches.labels(resource).inc()

    def watch_brought(self, resource: str) -> None:
        self._watch_events.labels(resource).inc()

    def watch_ended(self, resource: str, code: int) -> None:
        self._watch_ends.labels(resource, str(code)).inc()

    def _count_trouble(self, trouble: Trouble) -> None:
        if self._informers is None or not self._informers.is_to_be_expected(trouble):
            self._troubles.labels(trouble.resource).inc()

    def _collect(self) -> Iterator[Metric]:
        """Metrics that are computed at each scrape."""
        yield from self._job_metrics.collect()
        held, depth, retrying, oldest = family(HELD), family(DEPTH), family(RETRYING), family(OLDEST)
        if self._informers is not None and self._queue is not None:
            for cache in self._informers.caches:
                held.add_metric((cache.resource.full_name,), len(cache.objects))
            now = self._clock.monotonic()
            due = self._queue.next_due()
            depth.add_metric((), self._queue.due(now))
            retrying.add_metric((), self._queue.retrying)
            oldest.add_metric((), 0.0 if due is None else max(0.0, now - due))
        yield from (held, depth, retrying, oldest)
