"""Changes the number of replicas in a manifest of any generation, for `tarragon scale`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.errors import Problem
from tarragon.cli.jobs.editing import CannotChange, Edit, has_ended
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.manifest.loading import Refused
from tarragon.cli.manifest.overrides import assigned
from tarragon.cli.output.words import listed
from tarragon.frameworks.tensorflow.fields import LIST_SPELLINGS, Spec
from tarragon.job.annotations import (
    ANNOTATIONS,
    BY_RESTART,
    RESIZE,
    is_elastic_by_restart,
    resizes_by_restart,
    restarts_together,
)
from tarragon.job.model import ReplicaType, TrainingJob
from tarragon.job.phase import Phase
from tarragon.kube.core import Pod
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import intake


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The requested size. `least` and `most` are the bounds of an elastic job's workers."""

    replicas: Mapping[ReplicaType, int] = field(default_factory=dict)
    least: int | None = None
    most: int | None = None
    by_restart: bool = False

    @property
    def words(self) -> str:
        parts = [f"{kind.word} {number}" for kind, number in self.replicas.items()]
        bounds = (("min", self.least), ("max", self.most))
        return listed([*parts, *(f"{name} {number}" for name, number in bounds if number is not None)])


def scaling(wish: Wish) -> Edit:
    return Edit(
        doing="Scaling",
        done=f"scaled to {wish.words}",
        wanted=lambda job, before: _wanted(job, before, wish),
        has_come=lambda job, pods: _has_come(job, pods, wish),
        note=_resize_note,
    )


def _wanted(job: Known, before: JsonObject, wish: Wish) -> JsonObject:
    if job.status.phase.is_final:
        raise has_ended(job, "scale")
    if job.job is None or job.dialect is None:
        raise CannotChange(f"can't scale {job.name}: its manifest is invalid", remedy="see `describe`")
    after = _with_replicas(job, job.job, before, wish)
    decoded = intake(job.framework, after)
    if decoded.problems or decoded.job is None:
        raise _refused(job, decoded.problems)
    _check_bounds(job, decoded.job, wish)
    if job.job.wished() != decoded.job.wished():
        _check_can_grow(job, decoded.job)
    return after


def _with_replicas(job: Known, read: TrainingJob, before: JsonObject, wish: Wish) -> JsonObject:
    after = before
    for kind, number in wish.replicas.items():
        group = read.group(kind)
        if group is None:
            types = listed([group.type.value for group in read.groups])
            raise CannotChange(f"{job.name} has no replicas of type {kind.value}", remedy=f"it has {types}")
        if group.wish == number:
            continue
        after = assigned(_without_scale_field(after), f"{group.path}.replicas", number)
    after = _with_bounds(job, read, after, wish)
    if wish.by_restart and after is not before:
        after = assigned(after, f'{ANNOTATIONS}."{RESIZE}"', BY_RESTART)
    return after


def _with_bounds(job: Known, read: TrainingJob, before: JsonObject, wish: Wish) -> JsonObject:
    bounds = {Spec.MIN_INSTANCES: wish.least, Spec.MAX_INSTANCES: wish.most}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    if given and read.elastic is None:
        raise CannotChange(
            f"{job.name} is not elastic",
            remedy=f"submit it again with spec.{Spec.MIN_INSTANCES} and spec.{Spec.MAX_INSTANCES}",
        )
    after = before
    for name, bound in given.items():
        after = assigned(after, f"spec.{name}", bound)
    return after


def _without_scale_field(manifest: JsonObject) -> JsonObject:
    """Remove spec.replicas from a job with a list of replicas.

    `kubectl scale` writes it beside the list, and it would take precedence over the number in the list.
    """
    spec = manifest["spec"]
    if not any(name in spec for name in LIST_SPELLINGS) or Spec.REPLICAS not in spec:
        return manifest
    return {**manifest, "spec": {name: value for name, value in spec.items() if name != Spec.REPLICAS}}


def _refused(job: Known, problems: Sequence[Problem]) -> Refused:
    return Refused(f"{job.name} can't have this size", why="\n".join(map(str, problems)))


def _check_bounds(job: Known, after: TrainingJob, wish: Wish) -> None:
    wanted = wish.replicas.get(ReplicaType.WORKER)
    if after.elastic is None or wanted is None or after.elastic.minimum <= wanted <= after.elastic.maximum:
        return
    raise CannotChange(
        f"can't scale {job.name} to {wanted} workers",
        why=f"its bounds are {after.elastic.minimum} to {after.elastic.maximum}",
        remedy="change the bounds with --min and --max",
    )


def _check_can_grow(job: Known, after: TrainingJob) -> None:
    """Raise CannotChange if the running replicas could not use the added ones."""
    size = _size(job)
    growing = [kind for kind, wish in after.wished().items() if size and wish > size.get(kind, 0)]
    if not growing or after.elastic is not None or resizes_by_restart(after) or restarts_together(after):
        return
    raise CannotChange(
        f"can't scale up {job.name} while it runs: it is not elastic",
        why="its replicas started with a fixed cluster size, and reject others",
        remedy=f"--restart restarts all replicas at the new size (the annotation {RESIZE}: {BY_RESTART}) "
        "when the cluster has capacity; or suspend the job first",
    )


def _size(job: Known) -> Mapping[ReplicaType, int]:
    admission = job.status.admission
    return admission.size if admission is not None and job.status.phase is not Phase.SUSPENDED else {}


def _resize_note(job: Known) -> str:
    """Return a note about what happens before the job has the new size; empty for nothing."""
    if job.job is None:
        return ""
    size, wished = _size(job), job.job.wished()
    if not size:
        return f"{job.name} is not running: it will start at this size."
    differing = [kind for kind, wish in wished.items() if wish != size.get(kind, 0)]
    is_growing = any(wished[kind] > size.get(kind, 0) for kind in differing)
    is_restarted = restarts_together(job.job) or is_elastic_by_restart(job.job)
    if (differing and is_restarted) or (is_growing and resizes_by_restart(job.job)):
        return f"{job.name}: all replicas restart at the new size when the cluster has capacity."
    return ""


def _has_come(job: Known, pods: Sequence[Pod], wish: Wish) -> bool:
    if job.status.phase.is_final or job.status.phase is Phase.SUSPENDED:
        return True
    admission = job.status.admission
    if admission is None or any(admission.size.get(kind, 0) != number for kind, number in wish.replicas.items()):
        return False
    number = sum(admission.size.values())
    return job.status.ready == number == len([pod for pod in pods if not pod.metadata.is_ending])
