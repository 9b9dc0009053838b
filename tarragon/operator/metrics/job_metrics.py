"""Job metrics: jobs by phase, phase transitions, and waiting times."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from tarragon.base.clock import Clock
from tarragon.client.informer.cache_reader import CacheReader
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import recorded_status, status_of
from tarragon.kube.codec import parse_time
from tarragon.kube.meta import CustomObject, JsonObject, Key
from tarragon.operator.metrics.definitions import (
    DELETED,
    JOBS,
    LONGEST_WAIT,
    NEW,
    ORIGINAL_PHASE_COUNTERS,
    OTHER,
    PHASE_COUNTERS,
    PHASES,
    QUEUE_TIME,
    START_TIME,
    WAIT_CODES,
    WAITING,
)
from tarragon.operator.metrics.instruments import counter, gauge_family, histogram
from tarragon.plan.status.patch import tarragon_of


class JobMetrics:
    """Collects job metrics. Only the leader counts jobs: with those of a standby, sums would be doubled."""

    def __init__(self, clock: Clock, registry: CollectorRegistry) -> None:
        self._clock = clock
        self._leads = False
        self._kinds: Collection[str] = ()
        self._phases: Counter[tuple[str, str]] = Counter()
        self._waits: Counter[tuple[str, str]] = Counter()
        self._queued: dict[tuple[str, Key], _Queued] = {}
        """The jobs that wait, since when and why."""
        self._queue_time = histogram(QUEUE_TIME, registry)
        self._start_time = histogram(START_TIME, registry)
        self._transitions = {name: counter(definition, registry) for name, definition in PHASE_COUNTERS.items()}
        self._original_transitions = {
            kind: {name: counter(definition, registry) for name, definition in counters.items()}
            for kind, counters in ORIGINAL_PHASE_COUNTERS.items()
        }

    def attach(self, jobs: Mapping[str, CacheReader[CustomObject]]) -> None:
        """Subscribe to the job caches by kind; must be called before the caches run."""
        self._kinds = jobs.keys()
        for kind, cache in jobs.items():
            for transitions in self._transitions.values():
                transitions.labels(kind)  # 0 from the beginning: a rule compares failures with successes
            cache.add_event_handler(partial(self._changed, kind))

    def leadership_changed(self, acts: bool) -> None:  # noqa: FBT001 - the claim that is noted
        self._leads = acts

    def collect(self) -> Iterator[Metric]:
        """The current numbers of jobs by phase and of waiting jobs by code, and the longest waits."""
        jobs, waiting, longest = gauge_family(JOBS), gauge_family(WAITING), gauge_family(LONGEST_WAIT)
        oldest = self._oldest() if self._leads else {}
        for kind in self._kinds if self._leads else ():
            for phase in PHASES:
                jobs.add_metric((kind, phase), self._phases[kind, phase])
            for code in WAIT_CODES:
                waiting.add_metric((kind, code), self._waits[kind, code])
                longest.add_metric((kind, code), oldest.get((kind, code), 0.0))
        yield from (jobs, waiting, longest)

    def _oldest(self) -> Mapping[tuple[str, str], float]:
        """The seconds for which the oldest waiting job has been queued, by kind and code."""
        since: dict[tuple[str, str], dt.datetime] = {}
        for (kind, _), queued in self._queued.items():
            since[kind, queued.code] = min(queued.since, since.get((kind, queued.code), queued.since))
        now = self._clock.now()
        return {each: max(0.0, (now - moment).total_seconds()) for each, moment in since.items()}

    def _changed(self, kind: str, key: Key, old: CustomObject | None, new: CustomObject | None) -> None:
        before, after = _counted_status(old), _counted_status(new)
        if before == after:
            return
        self._note_queued(kind, key, after)
        self._phases[kind, before.phase] -= 1
        self._phases[kind, after.phase] += 1
        self._waits[kind, before.wait] -= 1
        self._waits[kind, after.wait] += 1
        if self._leads:
            self._count_transitions(kind, before.phase, after.phase)
            if old is not None and new is not None:
                self._observe_times(kind, recorded_status(old), recorded_status(new))

    def _note_queued(self, kind: str, key: Key, status: _CountedStatus) -> None:
        self._queued.pop((kind, key), None)
        with suppress(ValueError):  # users can edit a status
            if status.wait:
                self._queued[kind, key] = _Queued(parse_time(status.queued), status.wait)

    def _count_transitions(self, kind: str, before: str, after: str) -> None:
        happened_by_transition = {
            "created": before == NEW and after not in {NEW, DELETED},
            "deleted": after == DELETED,
            "succeeded": before not in {DELETED, after} and after == Phase.SUCCEEDED,
            "failed": before not in {DELETED, after} and after == Phase.FAILED,
            "restarted": before not in {DELETED, after} and after == Phase.RESTARTING,
        }
        for transition, happened in happened_by_transition.items():
            if happened:
                self._transitions[transition].labels(kind).inc()
                original = self._original_transitions.get(kind, {}).get(transition)
                if original is not None:
                    original.inc()

    def _observe_times(self, kind: str, before: JobStatus, after: JobStatus) -> None:
        """Observe queue and start times. A job that starts again after a restart or resumption is observed again."""
        admission = after.admission
        if admission is None or admission.admitted_at is None:
            return
        if not before.is_admitted:
            self._queue_time.labels(kind).observe((admission.admitted_at - admission.queued_at).total_seconds())
        if before.phase is Phase.CREATED and after.phase is Phase.RUNNING:
            self._start_time.labels(kind).observe((self._clock.now() - admission.admitted_at).total_seconds())


@dataclass(frozen=True, slots=True)
class _CountedStatus:
    """The part of a job's status that is counted; decoding the whole status at each change would be expensive."""

    phase: str = DELETED
    wait: str = ""
    admitted: str = ""
    queued: str = ""


@dataclass(frozen=True, slots=True)
class _Queued:
    since: dt.datetime
    code: str


def _counted_status(job: CustomObject | None) -> _CountedStatus:
    """Read the counted part of the status. Unknown values, as users can edit a status, do not become label values."""
    if job is None:
        return _CountedStatus()
    tarragon = tarragon_of(status_of(job))
    state = tarragon.get("state")
    admission = _object_field(tarragon, "admission")
    # The wait of an admitted gang says why the gang does not grow, so the job is not counted as waiting.
    code = None if "admitted" in admission else _object_field(admission, "wait").get("code")
    return _CountedStatus(
        phase=state if state in PHASES else NEW,
        wait="" if code is None else code if code in WAIT_CODES else OTHER,
        admitted=str(admission.get("admitted", "")),
        queued=str(admission.get("queued", "")),
    )


def _object_field(fields: JsonObject, name: str) -> JsonObject:
    found = fields.get(name)
    return found if isinstance(found, Mapping) else {}
