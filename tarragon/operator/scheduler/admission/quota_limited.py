"""Reports in a job's status that its namespace's quota keeps the job smaller than requested."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tarragon.job.status import Admission
from tarragon.operator.informers.candidates import Candidates, JobId
from tarragon.operator.scheduler.admission.maintenance import AdmissionUpdate
from tarragon.scheduling.actions.quota_limited import quota_limited_gangs
from tarragon.scheduling.api.decision import QUOTA_EXCEEDED, Defer
from tarragon.scheduling.api.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class QuotaLimitUpdates:
    """Updates of the quota message of running jobs."""

    waits: list[Defer] = field(default_factory=list)
    ended_waits: list[AdmissionUpdate] = field(default_factory=list)
    """Jobs that a quota no longer limits, with the admission without that wait."""


def quota_limit_updates(snapshot: Snapshot, candidates: Candidates, decided: Collection[JobId]) -> QuotaLimitUpdates:
    """The quota messages of all running gangs, unchanged ones included: the writer decides which to write, and when.

    Namespaces with a decision in this cycle are skipped until the next one: quota that one job releases may go to
    another, and every other job of the namespace would be updated twice for nothing.
    """
    updates = QuotaLimitUpdates()
    messages, waits = quota_limited_gangs(snapshot), candidates.recorded_waits
    changing_namespaces = {key.namespace for _, key in decided}
    for gang in snapshot.running:
        if gang.queue in changing_namespaces or (gang.name not in messages and gang.name not in waits):
            continue
        candidate = candidates.by_name(gang.name)
        admission = candidate.admission
        if admission is None or not _may_report(admission):
            continue
        if gang.name in messages:
            updates.waits.append(Defer(gang.name, QUOTA_EXCEEDED, messages[gang.name]))
        elif admission.wait is not None:
            updates.ended_waits.append((candidate, replace(admission, wait=None)))
    return updates


def _may_report(admission: Admission) -> bool:
    """Whether a quota message may be written: problems of the job's pods take precedence."""
    return admission.backoff is None and (admission.wait is None or admission.wait.code == QUOTA_EXCEEDED)
