"""Recognises that a program has reported for the first time since all replicas of its job run.

Most changes of progress concern neither the reconciler nor the queue. This one is recorded: rates are measured from the
first report on.
"""

from __future__ import annotations

import msgspec

from tarragon.kube.codec import decode
from tarragon.kube.meta import CustomObject, Json, PartialObject


class _Stretch(PartialObject, frozen=True):
    first: Json = None


class _Work(PartialObject, frozen=True):
    running: _Stretch | None = None


class _Tarragon(PartialObject, frozen=True):
    progress: Json = None
    work: _Work = _Work()


class _Status(PartialObject, frozen=True):
    tarragon: _Tarragon = _Tarragon()


def awaits_first_report(job: CustomObject) -> bool:
    """Whether the job's status has progress, and the record of its work does not say when that was first reported."""
    try:
        status: _Status | None = decode(bytes(job.raw_status), _Status | None)  # type: ignore[arg-type]
    except msgspec.DecodeError:
        return False
    running = None if status is None else status.tarragon.work.running
    return running is not None and running.first is None and status is not None and status.tarragon.progress is not None
