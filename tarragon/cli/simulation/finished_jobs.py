"""Finished jobs as a trace of the simulator: a line of CSV for each."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.job.model import TrainingJob
from tarragon.plan.nodes.replica_requests import group_request
from tarragon.plan.status.work import counted_group, speedup_prior
from tarragon.scheduling.api.work import devices_of
from tarragon.scheduling.estimates.work_record import WorkRecord

COLUMNS = ("name", "submit_s", "replicas", "duration_s", "gpus", "minimum", "maximum", "kind", "queue")
MIN_SECONDS = 0.1
"""What a job took that ended at once: a trace has no job without a run time."""


def trace_of(jobs: Sequence[ClusterJob]) -> str:
    """Return the trace of the jobs that have finished, in the order of their submission; empty if none has."""
    rows = [(job.created.timestamp(), row) for job in jobs if job.created and (row := _row(job))]
    if not rows:
        return ""
    first = min(created for created, _ in rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for created, row in sorted(rows, key=lambda each: (each[0], each[1]["name"])):
        writer.writerow({**row, "submit_s": f"{created - first:.0f}"})
    return text.getvalue()


def _row(found: ClusterJob) -> Mapping[str, str] | None:
    """Return what is known of a job; None if it has not finished, never ran, or can't be read."""
    job, status = found.job, found.status
    if job is None or not status.phase.is_final or status.start_time is None:
        return None
    group = counted_group(job)
    bounds = job.elastic_policy if job.is_elastic_type(group.type) else None
    return {
        "name": f"{found.key.namespace}/{found.command_key.name}",
        "replicas": str(group.replicas),
        "duration_s": f"{max(MIN_SECONDS, _run_time(found, job)):.1f}",
        # Traces have whole GPUs: a part of one counts as one.
        "gpus": str(math.ceil(devices_of(group_request(group)))),
        "minimum": str(bounds.min_replicas if bounds else group.replicas),
        "maximum": str(bounds.max_replicas if bounds else group.replicas),
        "kind": status.work.kind,
        "queue": found.key.namespace,
    }


def _run_time(found: ClusterJob, job: TrainingJob) -> float:
    """Return how long the job would run at the size that it requests. What it did at other sizes is counted by the
    speed-up that is assumed for jobs of which nothing was measured.
    """
    status, prior = found.status, speedup_prior(job)
    service = WorkRecord(sizes=status.work.sizes).service(prior)
    if service:
        return service / prior.at(prior.requested)
    if status.start_time is None or status.completion_time is None:
        return 0.0
    return (status.completion_time - status.start_time).total_seconds()
