"""The status of a job whose admission the scheduler writes: what follows from the admission is written with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec.structs import replace as replace_fields

from tarragon.frameworks.plugin import Framework
from tarragon.job.status_encoding import status_of
from tarragon.kube.codec import encode
from tarragon.kube.event import Event
from tarragon.kube.merge_patch import apply_merge_patch, create_merge_patch
from tarragon.kube.meta import Json, JsonObject
from tarragon.plan.reconcile.decide import decide_status
from tarragon.plan.status.patch import tarragon_of
from tarragon.plan.view.actions import ObservedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """A merge patch of a job's status, without preconditions, and the events that announce what it says."""

    patch: JsonObject
    events: Sequence[Event] = ()


def admitted_status(
    framework: Framework, observed: ObservedJob, admission: Mapping[str, Json], now: dt.datetime
) -> StatusWrite:
    """Return the write of this encoded admission and of the status that the reconciler would derive from it.

    The reconciler, when it sees the result, does what remains: it creates and deletes.
    """
    recorded = status_of(observed.object)
    admitted = {**recorded, "tarragon": {**tarragon_of(recorded), "admission": admission}}
    with_admission = replace_fields(observed.object, raw_status=msgspec.Raw(encode(admitted)))
    step = decide_status(framework, replace(observed, object=with_admission), now)
    if step.status_patch is None:
        return StatusWrite(patch=create_merge_patch(recorded, admitted))
    derived = apply_merge_patch(admitted, step.status_patch["status"])
    return StatusWrite(patch=create_merge_patch(recorded, derived), events=step.events)
