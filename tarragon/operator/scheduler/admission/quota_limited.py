"""What stands in the status of a job that runs smaller than it wishes because of the quota of its namespace."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tarragon.job.status import Admission
from tarragon.operator.informers.candidates import Candidates, JobId
from tarragon.operator.scheduler.admission.maintenance import Decided
from tarragon.scheduling.actions.quota_limited import kept_small
from tarragon.scheduling.api.decision import QUOTA_EXCEEDED, Wait
from tarragon.scheduling.api.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What is to be told of those that run."""

    waits: list[Wait] = field(default_factory=list)
    over: list[Decided] = field(default_factory=list)
    """Those that nothing holds back any more."""


def held_back(snapshot: Snapshot, candidates: Candidates, decided: Collection[JobId]) -> HeldBack:
    """Also those of which it is said already: what is news of that, and when it is told, others decide.

    Where somebody of a namespace was just decided about, what is left of its quota is seen in the next round: what one
    job gives back another one takes, and all the others would be told twice that nothing has changed for them.
    """
    found = HeldBack()
    words, told = kept_small(snapshot), candidates.waits
    changing = {key.namespace for _, key in decided}
    for gang in snapshot.running:
        if gang.queue in changing or (gang.name not in words and gang.name not in told):
            continue
        candidate = candidates.named(gang.name)
        admission = candidate.admission
        if admission is None or not _may_tell(admission):
            continue
        if gang.name in words:
            found.waits.append(Wait(gang.name, QUOTA_EXCEEDED, words[gang.name]))
        elif admission.wait is not None:
            found.over.append((candidate, replace(admission, wait=None)))
    return found


def _may_tell(admission: Admission) -> bool:
    """What its pods have met goes before."""
    return admission.retry is None and (admission.wait is None or admission.wait.code == QUOTA_EXCEEDED)
