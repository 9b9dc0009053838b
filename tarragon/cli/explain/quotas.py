"""Who holds what of the quota of a namespace, as far as its jobs tell. Pure."""

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
    """By the quota of its namespace: from starting, or from having all that it wishes."""
    admission = job.status.admission
    if admission is None or admission.wait is None or job.status.phase.is_final:
        return False
    return admission.wait.code == QUOTA_EXCEEDED


def holdings(job: Known, jobs: Iterable[Known], rules: Rules) -> Sequence[Holding]:
    """What other jobs of its namespace hold of what its quota limits; where that is not known, of what it asks for."""
    limited = rules.queues.get(job.key.namespace, Queue()).quota.keys() or _each(job).keys() - {PODS}
    others = (each for each in jobs if each.key.namespace == job.key.namespace and key(each) != key(job))
    held = ((each.address.name, _held(each, limited)) for each in sorted(others, key=lambda each: str(each.key)))
    return [(name, amounts) for name, amounts in held if amounts]


def _held(job: Known, limited: Collection[str]) -> Resources:
    admission = job.status.admission
    if admission is None or admission.admitted is None or job.status.phase.is_final or job.job is None:
        return {}
    # What stands in a status may not fit together where somebody has edited it: it is no reason to say nothing.
    there = Counter(size(job)) - Counter(replica.type for replica in job.status.finished & admission.nodes.keys())
    each = [(template_request(group.template), there[group.type]) for group in job.job.groups]
    held = total({name: amount * number for name, amount in asked.items()} for asked, number in each)
    return {name: amount for name, amount in held.items() if amount > 0 and name in limited}


def _each(job: Known) -> Resources:
    return total(template_request(group.template) for group in job.job.groups) if job.job is not None else {}
