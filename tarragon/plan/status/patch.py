"""From a status to the patch that writes it, and to the events that tell of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from tarragon.job import classic, conditions
from tarragon.job.accepted import accepted_fields
from tarragon.job.encoding import Summary, foreign_fields, state_word, tarragon_fields
from tarragon.job.model import ReplicaType
from tarragon.job.status import Condition, JobStatus
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import CustomObject, Json, JsonObject
from tarragon.kube.patch import difference
from tarragon.plan.input.decode_and_validate import brief
from tarragon.plan.view.job_view import Scene

_WARNINGS = frozenset(
    {
        conditions.ADMISSION_REFUSED,
        conditions.BLOCKED,
        conditions.EVICTED,
        conditions.FAILED,
        conditions.FIELDS_IGNORED,
        conditions.RESTARTING,
        conditions.SPEC_REFUSED,
        conditions.STALLED,
    }
)
# Of the others it is news only that they hold.
_TOLD_WHEN_FALSE = frozenset({conditions.ADMITTED, conditions.SUSPENDED})
# Of these, other words are news, too.
_TOLD_EACH_TIME = frozenset({conditions.ADMISSION_REFUSED, conditions.RESIZED})

OVERWRITTEN = "SettedPodTemplateRestartPolicy"
QUESTIONABLE = "QuestionableSpec"


def status_patch(scene: Scene, status: JobStatus) -> JsonObject | None:
    """Conditional on the version that was looked at; None when everything stands there already.

    The admission is left as it is, but for a status without one: that takes it away (a suspension does).
    """
    recorded = status_of(scene.observed.object)
    there = tarragon_of(recorded)
    ours: dict[str, Json] = {**foreign_fields(there), **tarragon_fields(status, _summary(scene, status))}
    if not status.phase.is_final or "accepted" in there:
        ours["accepted"] = accepted_fields(scene.job)
    if not scene.dialect.has_conditions:
        ours["record"] = classic.write(scene.job, status)
    admission = there.get("admission")
    if admission is not None and status.admission is scene.before.admission:
        ours["admission"] = admission
    shown = recorded if _is_told_already(scene, status) else scene.dialect.status(scene.job, status)
    return conditional(scene.observed.object, {**shown, "tarragon": ours})


def _is_told_already(scene: Scene, status: JobStatus) -> bool:
    """Of a job that was over before it was ours nobody knows more than what stands there."""
    return status.phase.is_final and not status.conditions and not scene.dialect.has_conditions


def conditional(found: CustomObject, status: Mapping[str, Json]) -> JsonObject | None:
    """The patch that makes the status this one, if nobody has written to the object meanwhile."""
    patch = difference(status_of(found), status)
    if not patch:
        return None
    return {"metadata": precondition(found), "status": patch}


def precondition(found: CustomObject) -> dict[str, Json]:
    return {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid}


def status_of(found: CustomObject) -> Mapping[str, Json]:
    return found.status if isinstance(found.status, Mapping) else {}


def tarragon_of(status: Mapping[str, Json]) -> Mapping[str, Json]:
    ours = status.get("tarragon")
    return ours if isinstance(ours, Mapping) else {}


def news(scene: Scene, status: JobStatus) -> list[Event]:
    """What people should read about the change. Told with the write of it, so that it is told once."""
    found = list(changes(scene.about, scene.before, status))
    if scene.before.condition(conditions.CREATED) is None:
        found += _doubts(scene)
    return found


def changes(about: ObjectReference, before: JobStatus, status: JobStatus) -> Iterator[Event]:
    """An event for each condition that says something new; one for two that say the same."""
    told: set[tuple[str, str]] = set()
    for condition in status.conditions:
        known = before.condition(condition.type)
        is_old = known is not None and (known.is_true, known.reason) == (condition.is_true, condition.reason)
        is_old = is_old and not (condition.type in _TOLD_EACH_TIME and known != condition)
        said = condition.reason, condition.message
        if not is_old and said not in told and (condition.is_true or condition.type in _TOLD_WHEN_FALSE):
            told.add(said)
            yield Event(about=about, type=_type(condition), reason=condition.reason, message=condition.message)


def _doubts(scene: Scene) -> Iterator[Event]:
    for doubt in scene.taken.warnings:
        reason = OVERWRITTEN if doubt.path.endswith("template.spec.restartPolicy") else QUESTIONABLE
        yield Event(about=scene.about, type="Warning", reason=reason, message=brief(doubt))


def _type(condition: Condition) -> Literal["Normal", "Warning"]:
    return "Warning" if condition.type in _WARNINGS else "Normal"


def _summary(scene: Scene, status: JobStatus) -> Summary:
    selector = scene.dialect.worker_selector(scene.job)
    waits = scene.needs_admission and not status.is_admitted
    return Summary(
        generation=scene.dialect.name,
        observed_generation=scene.observed.object.metadata.generation,
        state=state_word(status, waits=waits),
        total=sum(scene.size.values()),
        workers=sum(member.is_live for replica, member in scene.members.items() if replica.type is ReplicaType.WORKER),
        selector=",".join(f"{name}={value}" for name, value in selector.items()),
    )
