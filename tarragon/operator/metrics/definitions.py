"""The table of the operator's metrics; docs/metrics.md tells the same.

Labels are bounded: kinds, phases, resources and codes, never the name of a job, a pod or a namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tarragon.job.phase import Phase
from tarragon.plan.lifecycle.start_timeout import MOVED_TOO_OFTEN
from tarragon.plan.status.creation_failures import NODE_AWAY, NODE_FULL, UNSCHEDULABLE
from tarragon.plan.view.actions import NAME_TAKEN, REFUSED
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_AWAY,
    PREEMPTED,
    QUOTA_EXCEEDED,
    RESOURCES_RELEASING,
    SCHEDULER_ERROR,
)

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
REFUSED_ADMISSIONS = Definition(
    "tarragon_admissions_refused",
    "counter",
    "Admissions in a job's status that the scheduler could not have decided, and did not believe",
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
    *(REFUSED_ADMISSIONS, QUEUES_REFUSED),
    *(CALLS, WATCHES, WATCH_ENDS, WATCH_EVENTS, HELD, TROUBLES),
    *(LEADER, BUILD, TF_LEADER, *TF_TURNS.values()),
)
