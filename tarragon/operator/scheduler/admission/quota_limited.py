"""Waits of running jobs: reports that a namespace's quota keeps a job smaller than requested, and ends such waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tarragon.job.status import Admission
from tarragon.operator.informers.candidates import Candidates, JobId
from tarragon.operator.scheduler.admission.maintenance import AdmissionUpdate
from tarragon.operator.scheduler.job_errors import REPORT_WAIT, JobErrors
from tarragon.scheduling.actions.quota_limited import exceeded_quota
from tarragon.scheduling.api.decision import QUOTA_EXCEEDED, SCHEDULER_ERROR, Defer
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.shares import QueueUsage

ENDED_HERE = frozenset({QUOTA_EXCEEDED, SCHEDULER_ERROR})
"""Codes of waits that end when they are not repeated. Waits for other reasons end with the next start or move."""


@dataclass(frozen=True, slots=True)
class QuotaLimitUpdates:
    """Updates of the waits of running jobs."""

    waits: list[Defer] = field(default_factory=list)
    ended_waits: list[AdmissionUpdate] = field(default_factory=list)
    """Jobs that neither a quota nor an error limits any more, with the admission without that wait."""


def quota_limit_updates(
    snapshot: Snapshot,
    candidates: Candidates,
    job_errors: JobErrors,
    decided: Collection[JobId],
    deferred: Collection[str],
) -> QuotaLimitUpdates:
    """The quota messages of all running gangs, unchanged ones included: the writer decides which to write, and when.

    Gangs that are deferred for another reason have no quota message. Namespaces with a decision in this cycle are
    skipped until the next one: quota that one job releases may go to another, and every other job of the namespace
    would be updated twice for nothing.
    """
    updates = QuotaLimitUpdates()
    usage, waits = QueueUsage(snapshot), candidates.recorded_waits
    changing_namespaces = {key.namespace for _, key in decided}
    for gang in snapshot.running:
        if gang.queue not in usage.queues_with_quota and gang.name not in waits:
            continue  # Nothing limits it, and nothing is to be taken back: that is so of nearly all.
        if gang.queue in changing_namespaces or gang.name in deferred:
            continue
        candidate = candidates.by_name(gang.name)
        with job_errors.isolate(candidate.id, REPORT_WAIT):
            message = exceeded_quota(gang, usage)
            admission = candidate.admission
            if admission is None or not (message or gang.name in waits) or not _may_report(admission):
                continue
            if message:
                updates.waits.append(Defer(gang.name, QUOTA_EXCEEDED, message))
            elif admission.wait is not None:
                updates.ended_waits.append((candidate, replace(admission, wait=None)))
    return updates


def _may_report(admission: Admission) -> bool:
    """Whether a quota message may be written: problems of the job's pods take precedence."""
    return admission.backoff is None and (admission.wait is None or admission.wait.code in ENDED_HERE)
