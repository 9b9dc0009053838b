"""Adds up how much of a namespace's quota its jobs use. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from tarragon.base.resources import PODS, Resources, add_resources
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.queueing import job_key
from tarragon.cli.jobview.rows import current_size
from tarragon.plan.nodes.replica_requests import group_request
from tarragon.scheduling.api.decision import QUOTA_EXCEEDED
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules

QuotaUse = tuple[str, Resources]


def is_quota_limited(job: ClusterJob) -> bool:
    """Report whether the quota of its namespace keeps the job from starting, or from reaching its requested size."""
    admission = job.status.admission
    if admission is None or admission.wait is None or job.status.phase.is_final:
        return False
    return admission.wait.code == QUOTA_EXCEEDED


def quota_use_by_others(job: ClusterJob, jobs: Iterable[ClusterJob], rules: SchedulingRules) -> Sequence[QuotaUse]:
    """Return the use by other jobs in the namespace of the resources that the quota limits.

    If the quota is not known, these are the resources that the job requests.
    """
    limited = rules.queues.get(job.key.namespace, QueueRules()).quota.keys() or _requested(job).keys() - {PODS}
    others = (each for each in jobs if each.key.namespace == job.key.namespace and job_key(each) != job_key(job))
    held = ((each.command_key.name, _held(each, limited)) for each in sorted(others, key=lambda each: str(each.key)))
    return [(name, amounts) for name, amounts in held if amounts]


def _held(job: ClusterJob, limited: Collection[str]) -> Resources:
    admission = job.status.admission
    if admission is None or admission.admitted_at is None or job.status.phase.is_final or job.job is None:
        return {}
    # The parts of an edited status may contradict each other; report what can be computed.
    unfinished = Counter(current_size(job)) - Counter(
        replica.type for replica in job.status.succeeded_replicas & admission.nodes.keys()
    )
    each = [(group_request(group), unfinished[group.type]) for group in job.job.replica_specs]
    held = add_resources({name: amount * number for name, amount in request.items()} for request, number in each)
    return {name: amount for name, amount in held.items() if amount > 0 and name in limited}


def _requested(job: ClusterJob) -> Resources:
    return add_resources(group_request(group) for group in job.job.replica_specs) if job.job is not None else {}
