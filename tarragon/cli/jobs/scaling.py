"""Changes the number of replicas in a manifest of any generation, for `tarragon scale`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.errors import Problem
from tarragon.cli.jobs.editing import JobEdit, JobNotEditable, job_has_ended
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.manifest.loading import InvalidManifest
from tarragon.cli.manifest.overrides import set_path
from tarragon.cli.output.words import joined
from tarragon.job.annotations import (
    ANNOTATIONS,
    BY_RESTART,
    RESIZE_ANNOTATION,
    is_elastic_by_restart,
    resizes_by_restart,
    restarts_as_gang,
)
from tarragon.job.model import ReplicaType, TrainingJob
from tarragon.job.phase import Phase
from tarragon.kube.core import Pod
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import decode_and_validate


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSize:
    """The requested size. `minimum` and `maximum` are the bounds of an elastic job's workers."""

    replicas: Mapping[ReplicaType, int] = field(default_factory=dict)
    minimum: int | None = None
    maximum: int | None = None
    by_restart: bool = False

    @property
    def description(self) -> str:
        parts = [f"{kind.lower()} {number}" for kind, number in self.replicas.items()]
        bounds = (("min", self.minimum), ("max", self.maximum))
        return joined([*parts, *(f"{name} {number}" for name, number in bounds if number is not None)])


def scale_edit(wish: RequestedSize) -> JobEdit:
    return JobEdit(
        in_progress_verb="Scaling",
        past_participle=f"scaled to {wish.description}",
        edited_manifest=lambda job, before: _wanted(job, before, wish),
        is_applied=lambda job, pods: _has_come(job, pods, wish),
        notes=_notes,
    )


def _wanted(job: ClusterJob, before: JsonObject, wish: RequestedSize) -> JsonObject:
    if job.status.phase.is_final:
        raise job_has_ended(job, "scale")
    if job.job is None or job.dialect is None:
        raise JobNotEditable(f"can't scale {job.name}: its manifest is invalid", remedy="see `describe`")
    after = _with_replicas(job, job.job, before, wish)
    decoded = decode_and_validate(job.framework, after)
    if decoded.problems or decoded.job is None:
        raise _refused(job, decoded.problems)
    _check_bounds(job, decoded.job, wish)
    if job.job.requested_size() != decoded.job.requested_size():
        _check_can_grow(job, decoded.job)
    return after


def _with_replicas(job: ClusterJob, read: TrainingJob, before: JsonObject, wish: RequestedSize) -> JsonObject:
    after = before
    for kind, number in wish.replicas.items():
        group = read.replica_spec(kind)
        if group is None:
            types = joined([str(group.type) for group in read.replica_specs])
            raise JobNotEditable(f"{job.name} has no replicas of type {kind}", remedy=f"it has {types}")
        if group.replicas == number:
            continue
        if not group.field_path:
            raise JobNotEditable(f"can't scale {job.name}: {job.framework.kind}s have a fixed size")
        after = set_path(
            job.framework.editable_fields.without_scaled_size(after), f"{group.field_path}.replicas", number
        )
    after = _with_bounds(job, read, after, wish)
    if wish.by_restart and after is not before:
        after = set_path(after, f'{ANNOTATIONS}."{RESIZE_ANNOTATION}"', BY_RESTART)
    return after


def _with_bounds(job: ClusterJob, read: TrainingJob, before: JsonObject, wish: RequestedSize) -> JsonObject:
    paths = job.framework.editable_fields
    bounds = {paths.min_replicas: wish.minimum, paths.max_replicas: wish.maximum}
    given = {path: bound for path, bound in bounds.items() if bound is not None}
    if given and read.elastic_policy is None:
        fields = " and ".join(filter(None, (paths.min_replicas, paths.max_replicas)))
        remedy = f"submit it again with {fields}" if fields else f"{job.framework.kind}s have a fixed size"
        raise JobNotEditable(f"{job.name} is not elastic", remedy=remedy)
    after = before
    for path, bound in given.items():
        after = set_path(after, path, bound)
    return after


def _refused(job: ClusterJob, problems: Sequence[Problem]) -> InvalidManifest:
    return InvalidManifest(f"{job.name} can't have this size", why="\n".join(map(str, problems)))


def _check_bounds(job: ClusterJob, after: TrainingJob, wish: RequestedSize) -> None:
    group = after.elastic_group
    wanted = None if group is None else wish.replicas.get(group.type)
    if (
        after.elastic_policy is None
        or wanted is None
        or after.elastic_policy.min_replicas <= wanted <= after.elastic_policy.max_replicas
    ):
        return
    raise JobNotEditable(
        f"can't scale {job.name} to {wanted} workers",
        why=f"its bounds are {after.elastic_policy.min_replicas} to {after.elastic_policy.max_replicas}",
        remedy="change the bounds with --min and --max",
    )


def _check_can_grow(job: ClusterJob, after: TrainingJob) -> None:
    """Raise JobNotEditable if the running replicas could not use the added ones."""
    size = _size(job)
    growing = [kind for kind, wish in after.requested_size().items() if size and wish > size.get(kind, 0)]
    if not growing or after.elastic_policy is not None or resizes_by_restart(after):
        return
    raise JobNotEditable(
        f"can't scale up {job.name} while it runs: it is not elastic",
        why="its replicas started with a fixed cluster size, and reject others",
        remedy=f"--restart restarts all replicas at the new size (the annotation {RESIZE_ANNOTATION}: {BY_RESTART}) "
        "when the cluster has capacity; or suspend the job first",
    )


def _size(job: ClusterJob) -> Mapping[ReplicaType, int]:
    admission = job.status.admission
    return admission.size if admission is not None and job.status.phase is not Phase.SUSPENDED else {}


def _notes(before: ClusterJob, after: ClusterJob) -> Sequence[str]:
    """Return what happens before the job has the new size, and warnings that the job did not have before."""
    warnings = [f"warning: {warning}" for warning in after.warnings if warning not in before.warnings]
    return [*filter(None, (_resize_note(after),)), *warnings]


def _resize_note(job: ClusterJob) -> str:
    """Return a note about what happens before the job has the new size; empty for nothing."""
    if job.job is None:
        return ""
    size, wished = _size(job), job.job.requested_size()
    if not size:
        return f"{job.name} is not running: it will start at this size."
    differing = [kind for kind, wish in wished.items() if wish != size.get(kind, 0)]
    is_growing = any(wished[kind] > size.get(kind, 0) for kind in differing)
    is_restarted = resizes_by_restart(job.job) if is_growing else restarts_as_gang(job.job)
    if differing and (is_restarted or is_elastic_by_restart(job.job)):
        return f"{job.name}: all replicas restart at the new size when the cluster has capacity."
    return ""


def _has_come(job: ClusterJob, pods: Sequence[Pod], wish: RequestedSize) -> bool:
    if job.status.phase.is_final or job.status.phase is Phase.SUSPENDED:
        return True
    admission = job.status.admission
    if admission is None or any(admission.size.get(kind, 0) != number for kind, number in wish.replicas.items()):
        return False
    number = sum(admission.size.values())
    return job.status.running_replicas == number == len([pod for pod in pods if not pod.metadata.is_being_deleted])
