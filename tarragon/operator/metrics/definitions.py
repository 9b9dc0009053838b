"""Definitions of the operator's metrics; docs/metrics.md repeats them.

Labels are bounded: kinds, phases, resources and codes, never the name of a job, a pod or a namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tarragon.frameworks.plugin import OriginalMetrics
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.phase import Phase
from tarragon.plan.lifecycle.start_timeout import MOVED_TOO_OFTEN
from tarragon.plan.status.creation_failures import (
    GPU_NOT_FREE,
    GPU_NOT_READY,
    NODE_FULL,
    NODE_UNAVAILABLE,
    UNSCHEDULABLE,
)
from tarragon.plan.view.actions import NAME_TAKEN, REFUSED
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_UNAVAILABLE,
    PREEMPTED,
    QUOTA_EXCEEDED,
    RESOURCES_RELEASING,
    SCHEDULER_ERROR,
    Admit,
    Defer,
    Evict,
    GangDecision,
    Resize,
)

NEW = "New"
"""The phase of a job without a status from the operator."""
DELETED = ""
PHASES = (NEW, "Waiting", "Starting", *(phase.value for phase in Phase if phase is not Phase.CREATED))
OTHER = "Other"
UNEXPECTED_ERROR = "Bug"
"""The `reason` label that counts errors other than the API server's."""
POLICY_FAILED = "policy"
"""The `decision` label that counts scheduling cycles in which the policy raised, whatever gang was left out."""
DECISION_LABELS: Mapping[type[GangDecision], str] = {Admit: "Place", Resize: "Resize", Evict: "Evict", Defer: "Wait"}
"""The `decision` label that counts rejected decisions. Dashboards use these values, so they outlive class names."""
WAIT_CODES = (
    NEVER_FITS,
    NODES_UNAVAILABLE,
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
    NODE_UNAVAILABLE,
    GPU_NOT_READY,
    GPU_NOT_FREE,
    MOVED_TOO_OFTEN,
    OTHER,
)

_SOON = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric. Prometheus adds the suffix `_total` to a counter's name."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = _SOON


BUILD = MetricDefinition("tarragon_build_info", "gauge", "Always 1", ("version", "python"))
LEADER = MetricDefinition("tarragon_is_leader", "gauge", "1 while this operator is the leader")
READY = MetricDefinition("tarragon_is_ready", "gauge", "1 once this operator has listed all kinds that it needs")
JOBS = MetricDefinition("tarragon_jobs", "gauge", "Existing jobs, reported by the leader", ("kind", "phase"))
WAITING = MetricDefinition(
    "tarragon_jobs_waiting", "gauge", "Jobs waiting for admission, by the code of their wait", ("kind", "code")
)
LONGEST_WAIT = MetricDefinition(
    "tarragon_jobs_longest_wait_seconds",
    "gauge",
    "How long the oldest of these jobs has been queued; 0 if there is none",
    ("kind", "code"),
)
QUEUE_TIME = MetricDefinition(
    "tarragon_job_queue_seconds", "histogram", "Time from queueing a job to its admission", ("kind",), _LONG
)
START_TIME = MetricDefinition(
    "tarragon_job_start_seconds", "histogram", "Time from a job's admission to Running", ("kind",), _LONG
)
PHASE_COUNTERS = {
    "created": MetricDefinition("tarragon_jobs_created", "counter", "Jobs whose first status was written", ("kind",)),
    "deleted": MetricDefinition("tarragon_jobs_deleted", "counter", "Deleted jobs", ("kind",)),
    "succeeded": MetricDefinition("tarragon_jobs_succeeded", "counter", "Succeeded jobs", ("kind",)),
    "failed": MetricDefinition("tarragon_jobs_failed", "counter", "Failed jobs", ("kind",)),
    "restarted": MetricDefinition("tarragon_jobs_restarted", "counter", "Times a job restarted replicas", ("kind",)),
}
RECONCILES = MetricDefinition(
    "tarragon_reconcile_seconds", "histogram", "Duration of a reconcile, including its writes", ("kind",)
)
ERRORS = MetricDefinition(
    "tarragon_reconcile_errors", "counter", "Reconciles that failed and are retried", ("kind", "reason")
)
CYCLES = MetricDefinition(
    "tarragon_admission_round_seconds", "histogram", "Duration of a scheduling cycle, including its writes"
)
CYCLE_ERRORS = MetricDefinition("tarragon_admission_errors", "counter", "Scheduling cycles that failed", ("reason",))
DECISIONS = MetricDefinition(
    "tarragon_scheduler_decisions",
    "counter",
    "Scheduling decisions that were written; code: why the job waits, if it does",
    ("decision", "code"),
)
REFUSED_DECISIONS = MetricDefinition(
    "tarragon_scheduler_refused_decisions",
    "counter",
    "Invalid policy decisions that were rejected; `policy`: cycles in which the policy itself failed",
    ("decision",),
)
REFUSED_ADMISSIONS = MetricDefinition(
    "tarragon_admissions_refused",
    "counter",
    "Admissions in a job's status that the scheduler rejected because it could not have decided them",
)
QUEUES_REFUSED = MetricDefinition(
    "tarragon_queues_file_refused", "gauge", "1 while the queues file is invalid and the previous rules stay in effect"
)
PROGRESS_REPORTS = MetricDefinition(
    "tarragon_progress_reports",
    "counter",
    "Reports of progress; result: accepted, empty, invalid, limited, unauthorized, forbidden, unavailable, failed",
    ("result",),
)
PROGRESS_WRITES = MetricDefinition(
    "tarragon_progress_writes",
    "counter",
    "Writes of a job's progress; result: written, gone, conflict (repeated soon), error",
    ("result",),
)
QUEUE_DEPTH = MetricDefinition("tarragon_queue_depth", "gauge", "Jobs that are due for a reconcile")
QUEUE_AGE = MetricDefinition("tarragon_queue_oldest_seconds", "gauge", "How long the oldest of these jobs has been due")
QUEUE_RETRYING = MetricDefinition("tarragon_queue_retrying", "gauge", "Jobs whose last reconcile failed")
CALLS = MetricDefinition(
    "tarragon_api_call_seconds",
    "histogram",
    "API server calls other than watches; code 0: cancelled before the response",
    ("verb", "resource", "code"),
)
WATCHES = MetricDefinition("tarragon_watches_started", "counter", "Watches started", ("resource",))
WATCH_ENDS = MetricDefinition(
    "tarragon_watches_ended", "counter", "Watches ended; code 200: without an error", ("resource", "code")
)
WATCHES_LOST = MetricDefinition(
    "tarragon_watches_lost",
    "counter",
    "Open watches replaced because they did not deliver our own writes; reason: deaf (no change at all), gap",
    ("resource", "reason"),
)
WATCH_EVENTS = MetricDefinition("tarragon_watch_events", "counter", "Watch events, including bookmarks", ("resource",))
CACHED_OBJECTS = MetricDefinition("tarragon_cache_objects", "gauge", "Objects in the caches", ("resource",))
CACHE_ERRORS = MetricDefinition(
    "tarragon_cache_troubles", "counter", "Failed lists and watches, and undecodable objects", ("resource",)
)

_ORIGINALS = {framework.kind: framework.original_metrics for framework in FRAMEWORKS}


def _original_counters(kind: str, original: OriginalMetrics) -> Mapping[str, MetricDefinition]:
    return {
        transition: MetricDefinition(
            f"{original.prefix}_jobs_{name}", "counter", f"As tarragon_jobs_{transition}_total, of {kind}s"
        )
        for transition, name in original.counters.items()
    }


ORIGINAL_LEADERS = [
    MetricDefinition(f"{original.prefix}_is_leader", "gauge", "As tarragon_is_leader")
    for original in _ORIGINALS.values()
    if original is not None
]
"""The names of the original operators (tf-operator 1.0, mpi-operator 0.2), for existing dashboards."""
ORIGINAL_PHASE_COUNTERS = {
    kind: _original_counters(kind, original) for kind, original in _ORIGINALS.items() if original is not None
}
"""The same by kind and transition."""

DEFINITIONS = (
    *(JOBS, WAITING, LONGEST_WAIT, QUEUE_TIME, START_TIME, *PHASE_COUNTERS.values()),
    *(RECONCILES, ERRORS, QUEUE_DEPTH, QUEUE_AGE, QUEUE_RETRYING, CYCLES, CYCLE_ERRORS, DECISIONS, REFUSED_DECISIONS),
    *(REFUSED_ADMISSIONS, QUEUES_REFUSED, PROGRESS_REPORTS, PROGRESS_WRITES),
    *(CALLS, WATCHES, WATCH_ENDS, WATCHES_LOST, WATCH_EVENTS, CACHED_OBJECTS, CACHE_ERRORS),
    *(LEADER, READY, BUILD, *ORIGINAL_LEADERS),
    *(definition for counters in ORIGINAL_PHASE_COUNTERS.values() for definition in counters.values()),
)
