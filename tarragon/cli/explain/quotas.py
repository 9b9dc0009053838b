"""Adds up how much of a namespace's quota its jobs use. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from tarragon.base.resources import PODS, Resources, total
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.queueing import key
from tarragon.cli.jobview.rows import size
from tarragon.plan.nodes.capacity import template_request
from tarragon.scheduling.api.decision import QUOTA_EXCEEDED
from tarragon.scheduling.api.rules import Queue, Rules

Holding = tuple[str, Resources]


def is_held_back(job: Known) -> bool:
    """Report whether the quota of its namespace keeps the job from starting, or from reaching its requested size."""
    admission = job.status.admission
    if admission is None or admission.wait is None or job.status.phase.is_final:
        return False
    return admission.wait.code == QUOTA_EXCEEDED


def holdings(job: Known, jobs: Iterable[Known], rules: Rules) -> Sequence[Holding]:
    """Return the use by other jobs in the namespace of the resources that the quota limits.

    If the quota is not known, these are the resources that the job requests.
    """
    limited = rules.queues.get(job.key.namespace, Queue()).quota.keys() or _requested(job).keys() - {PODS}
    others = (each for each in jobs if each.key.namespace == job.key.namespace and key(each) != key(job))
    held = ((each.address.name, _held(each, limited)) for each in sorted(others, key=lambda each: str(each.key)))
    return [(name, amounts) for name, amounts in held if amounts]


def _held(job: Known, limited: Collection[str]) -> Resources:
    admission = job.status.admission
    if admission is None or admission.admitted is None or job.status.phase.is_final or job.job is None:
        return {}
    # The parts of an edited status may contradict each other; report what can be computed.
    unfinished = Counter(size(job)) - Counter(replica.type for replica in job.status.finished & admission.nodes.keys())
    each = [(template_request(group.template), unfinished[group.type]) for group in job.job.groups]
    held = total({name: amount * number for name, amount in request.items()} for request, number in each)
    return {name: amount for name, amount in held.items() if amount > 0 and name in limited}


def _requested(job: Known) -> Resources:
    return total(template_request(group.template) for group in job.job.groups) if job.job is not None else {}
