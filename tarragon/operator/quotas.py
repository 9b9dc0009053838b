"""What stands in the status of a job that runs smaller than it wishes because of the quota of its namespace."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tarragon.job.status import Admission, Wait
from tarragon.operator.candidates import Candidates, JobId
from tarragon.operator.holders import Decided
from tarragon.scheduling.decision import QUOTA_EXCEEDED
from tarragon.scheduling.keptsmall import kept_small
from tarragon.scheduling.snapshot import Snapshot


def held_back(snapshot: Snapshot, candidates: Candidates, decided: Collection[JobId]) -> Iterator[Decided]:
    """Those of which that is not said yet, and those of which it is not true any more.

    Where somebody of a namespace was just decided about, what is left of its quota is seen in the next round: what one
    job gives back another one takes, and all the others would be told twice that nothing has changed for them.
    """
    words, told = kept_small(snapshot), candidates.waits
    changing = {key.namespace for _, key in decided}
    for gang in snapshot.running:
        if gang.queue in changing or (gang.name not in words and gang.name not in told):
            continue
        candidate = candidates.named(gang.name)
        admission = candidate.admission
        if admission is None or not _may_tell(admission):
            continue
        wait = Wait(code=QUOTA_EXCEEDED, message=words[gang.name]) if gang.name in words else None
        if wait != admission.wait:
            yield candidate, replace(admission, wait=wait)


def _may_tell(admission: Admission) -> bool:
    """What its pods have met goes before."""
    return admission.retry is None and (admission.wait is None or admission.wait.code == QUOTA_EXCEEDED)
