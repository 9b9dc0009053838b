"""Turns a job status into the patch that writes it and the events that announce it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tarragon.base.errors import Problem
from tarragon.job import conditions, training_operator_status
from tarragon.job.last_valid_spec import encode_job
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.progress import TRAINER_STATUS, encode_progress, encode_trainer_status, with_pods
from tarragon.job.status import Condition, JobStatus
from tarragon.job.status_encoding import (
    WHOLE_GANG,
    StatusSummary,
    display_state,
    encode_status,
    status_of,
    unknown_fields,
)
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.merge_patch import create_merge_patch
from tarragon.kube.meta import CustomObject, Json, JsonObject
from tarragon.plan.input.decode_and_validate import shorten_problem
from tarragon.plan.objects.podgroup_kinds import warn_about_ignored_pod_group
from tarragon.plan.status.pod_mirror import mirror_fields
from tarragon.plan.view.job_view import JobView

_WARNINGS = frozenset(
    {
        conditions.ADMISSION_DISCARDED,
        conditions.BLOCKED,
        conditions.EVICTED,
        conditions.FAILED,
        conditions.FIELDS_IGNORED,
        conditions.RESTARTING,
        conditions.SPEC_INVALID,
        conditions.STALLED,
    }
)
# All other conditions cause an event only when they become true.
_REPORTED_WHEN_FALSE = frozenset({conditions.ADMITTED, conditions.SUSPENDED})
# These cause an event also when only the message changes.
_REPORTED_ON_EACH_CHANGE = frozenset({conditions.ADMISSION_DISCARDED, conditions.RESIZED})

RESTART_POLICY_OVERWRITTEN = "SettedPodTemplateRestartPolicy"
QUESTIONABLE_SPEC = "QuestionableSpec"
_POD_RESTART_POLICY = "template.spec.restartPolicy"


def status_patch(view: JobView, status: JobStatus) -> JsonObject | None:
    """Return the patch, conditional on the observed resourceVersion; None when nothing changes.

    The recorded admission, which only the scheduler writes, is kept unless `status` drops it, as a suspension does. The
    recorded progress is kept, unless its pod is gone although the job goes on: then it says so.
    """
    recorded = status_of(view.observed.object)
    recorded_fields = tarragon_of(recorded)
    ours: dict[str, Json] = {**unknown_fields(recorded_fields), **encode_status(status, _summary(view, status))}
    if not status.phase.is_final or "accepted" in recorded_fields:
        ours["accepted"] = encode_job(view.job)
    if not view.dialect.has_conditions:
        ours["record"] = training_operator_status.status_fields(view.job, status)
    admission = recorded_fields.get("admission")
    if admission is not None and status.admission is view.recorded_status.admission:
        ours["admission"] = admission
    progress, trainer_status = _progress_fields(view, status)
    ours.update(progress)
    native_status = recorded if _keeps_foreign_status(view, status) else _native_fields(view, status)
    patch = conditional_status_patch(view.observed.object, {**native_status, **trainer_status, "tarragon": ours})
    return None if patch is not None and _tells_of_new_pods_only(view, status, patch["status"]) else patch


def _tells_of_new_pods_only(view: JobView, status: JobStatus, change: JsonObject) -> bool:
    """Whether nothing changes but that pods of a job exist, none of which runs: it is written when one does.

    Until then a lost pod is replaced alone, also in a gang that restarts as a whole.
    """
    if status.phase is not Phase.CREATED or not view.may_run or change.keys() != {"tarragon"}:
        return False
    ours: JsonObject = change["tarragon"]
    before = tarragon_of(status_of(view.observed.object)).get("replicas")
    are_more = isinstance(before, int) and ours.get("replicas", before) >= before
    return are_more and ours.keys() <= {"replicas", "gang"} and ours.get("gang", WHOLE_GANG) == WHOLE_GANG


def _native_fields(view: JobView, status: JobStatus) -> Mapping[str, Json]:
    """Return the status fields of the job's generation, and conditions, which clients of any generation may await."""
    fields = {**training_operator_status.conditions_field(status), **view.dialect.status_fields(view.job, status)}
    return {**fields, **mirror_fields(view, status, status_of(view.observed.object))}


def _progress_fields(view: JobView, status: JobStatus) -> tuple[Mapping[str, Json], Mapping[str, Json]]:
    """Return `progress` of our part of the status, and `trainerStatus` beside it; each is empty if there is none."""
    recorded = status_of(view.observed.object)
    ours = _only("progress", tarragon_of(recorded)), _only(TRAINER_STATUS, recorded)
    if status.phase.is_final:
        return ours
    progress = with_pods(status.progress, {pod.metadata.uid for pod in view.observed.pods})
    if progress is None or progress is status.progress:
        return ours
    return {"progress": encode_progress(progress)}, {TRAINER_STATUS: encode_trainer_status(progress)}


def _only(name: str, fields: Mapping[str, Json]) -> Mapping[str, Json]:
    return {name: fields[name]} if name in fields else {}


def _keeps_foreign_status(view: JobView, status: JobStatus) -> bool:
    """Whether the job finished before Tarragon managed it: then the dialect's own status fields are left unchanged."""
    return status.phase.is_final and not status.conditions and not view.dialect.has_conditions


def conditional_status_patch(found: CustomObject, status: Mapping[str, Json]) -> JsonObject | None:
    """Return the patch that turns the object's status into `status`, conditional on its resourceVersion and UID."""
    patch = create_merge_patch(status_of(found), status)
    if not patch:
        return None
    return {"metadata": precondition(found), "status": patch}


def precondition(found: CustomObject) -> dict[str, Json]:
    return {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid}


def tarragon_of(status: Mapping[str, Json]) -> Mapping[str, Json]:
    ours = status.get("tarragon")
    return ours if isinstance(ours, Mapping) else {}


def events_for(view: JobView, status: JobStatus) -> list[Event]:
    """Return the events for the change. They are sent along with its write, so that each is sent once."""
    events = list(condition_events(view.object_reference, view.recorded_status, status))
    if view.recorded_status.condition(conditions.CREATED) is None:
        own = warn_about_ignored_pod_group(view.job, view.observed.settings.scheduler_name)
        events += warning_events(view.object_reference, [*view.decoded.warnings, *own])
    return events


def condition_events(about: ObjectReference, before: JobStatus, status: JobStatus) -> Iterator[Event]:
    """Yield an event for each condition that changed; conditions with the same reason and message share one.

    A job that is admitted as soon as it is seen has one event that says both.
    """
    changed = [each for each in status.conditions if _is_reported(before.condition(each.type), each)]
    admitted = next(
        (each for each in changed if each.type == each.reason == conditions.ADMITTED and each.is_true), None
    )
    if admitted is not None and any(each.type == conditions.CREATED for each in changed):
        changed = [
            replace(each, message=f"{each.message}; {admitted.message}") if each.type == conditions.CREATED else each
            for each in changed
            if each is not admitted
        ]
    reported: set[tuple[str, str]] = set()
    for condition in changed:
        text = condition.reason, condition.message
        if text not in reported:
            reported.add(text)
            yield Event(
                involved_object=about, type=_event_type(condition), reason=condition.reason, message=condition.message
            )


def _is_reported(old: Condition | None, condition: Condition) -> bool:
    is_same = old is not None and (old.is_true, old.reason) == (condition.is_true, condition.reason)
    if is_same and not (condition.type in _REPORTED_ON_EACH_CHANGE and old != condition):
        return False
    return condition.is_true or condition.type in _REPORTED_WHEN_FALSE


def warning_events(about: ObjectReference, warnings: Sequence[Problem]) -> list[Event]:
    """Return the events for warnings about the manifest."""
    return [
        Event(
            involved_object=about,
            type="Warning",
            reason=RESTART_POLICY_OVERWRITTEN if warning.path.endswith(_POD_RESTART_POLICY) else QUESTIONABLE_SPEC,
            message=shorten_problem(warning),
        )
        for warning in warnings
    ]


def _event_type(condition: Condition) -> Literal["Normal", "Warning"]:
    return "Warning" if condition.type in _WARNINGS else "Normal"


def _is_scaled(view: JobView, replica: Replica) -> bool:
    """Whether the replica is one of those that the scale subresource counts."""
    group = view.job.elastic_group
    return group is not None and replica.type == group.type


def _summary(view: JobView, status: JobStatus) -> StatusSummary:
    selector = view.dialect.worker_selector(view.job)
    is_waiting = view.needs_admission and not status.is_admitted
    return StatusSummary(
        generation=view.dialect.name,
        observed_generation=view.observed.object.metadata.generation,
        state=display_state(status, waits=is_waiting),
        total=sum(view.size.values()),
        workers=sum(member.is_active for replica, member in view.members.items() if _is_scaled(view, replica)),
        selector=",".join(f"{name}={value}" for name, value in selector.items()),
    )
