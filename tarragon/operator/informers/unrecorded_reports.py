"""Recognises reports that the record of a job's work has yet to take up.

Most changes of progress concern neither the reconciler nor the queue. The first report of a program is recorded,
because rates are measured from it on, and so is the first rest that it implies, which is a promise.
"""

from __future__ import annotations

import msgspec

from tarragon.job.progress import Unit
from tarragon.job.work import counts_finer
from tarragon.kube.codec import decode
from tarragon.kube.meta import CustomObject, Json, PartialObject

FIRST_REPORT_DELAY = 1.0
"""Seconds to wait after a first report: programs often send several at the beginning."""
PROMISE_DELAY = 30.0
"""Seconds to wait while a rate is not known: it takes as long to be measured."""


class _Stretch(PartialObject, frozen=True):
    first: Json = None


class _Work(PartialObject, frozen=True):
    running: _Stretch | None = None
    unit: Unit | None = None
    believed: Json = None


class _Progress(PartialObject, frozen=True):
    done: Json = None
    total: Json = None
    unit: Unit = Unit.STEPS


class _Tarragon(PartialObject, frozen=True):
    progress: _Progress | None = None
    work: _Work = _Work()


class _Status(PartialObject, frozen=True):
    tarragon: _Tarragon = _Tarragon()


def record_delay(job: CustomObject) -> float | None:
    """Return after how many seconds the job should be reconciled because of its reports; None if there is no need."""
    try:
        status: _Status | None = decode(bytes(job.raw_status), _Status | None)  # type: ignore[arg-type]
    except msgspec.DecodeError:
        return None
    ours = _Tarragon() if status is None else status.tarragon
    if ours.progress is None or ours.work.running is None or not ours.progress.done:
        return None
    if ours.work.running.first is None or counts_finer(ours.progress.unit, ours.work.unit or ours.progress.unit):
        return FIRST_REPORT_DELAY
    return PROMISE_DELAY if ours.progress.total is not None and ours.work.believed is None else None
