"""Reads and validates the annotations that request a TensorBoard beside a job, for jobs of any generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon.base.errors import Problem
from tarragon.job.model import TensorBoardSpec, TrainingJob
from tarragon.kube.field_reader import join_path
from tarragon.kube.meta import JsonObject
from tarragon.kube.pod_validation import main_container

LOG_DIR_ANNOTATION = "tarragon.dev/tensorboard"
"""The value of --logdir: a directory as the training container sees it, or any other URL that TensorBoard reads."""
IMAGE_ANNOTATION = "tarragon.dev/tensorboard-image"
"""The image of TensorBoard. Default: the training image, since the TensorFlow images include TensorBoard."""
ENDS_WITH_JOB_ANNOTATION = "tarragon.dev/tensorboard-ends-with-job"
"""`true` stops TensorBoard when the job finishes. By default it serves until the job is deleted."""

_BOOLEANS = ("true", "false")


def with_tensorboard(job: TrainingJob, main: str) -> TrainingJob:
    """Add what the annotations request. `main` names the training container; annotations complete the job's fields."""
    found = job.tensorboard or _annotated(job, main)
    if found is None:
        return job
    image = job.annotations.get(IMAGE_ANNOTATION) or found.image
    ends = found.ends_with_job or job.annotations.get(ENDS_WITH_JOB_ANNOTATION) == "true"
    return replace(job, tensorboard=replace(found, image=image, ends_with_job=ends))


def validate_tensorboard(job: TrainingJob) -> Iterator[Problem]:
    """Report invalid values of the annotations, which would have no effect otherwise."""
    if job.annotations.get(LOG_DIR_ANNOTATION) == "":
        yield Problem(
            join_path("metadata.annotations", LOG_DIR_ANNOTATION), "is empty", "write the directory of the summaries"
        )
    ends = job.annotations.get(ENDS_WITH_JOB_ANNOTATION, "true")
    if ends not in _BOOLEANS:
        yield Problem(
            join_path("metadata.annotations", ENDS_WITH_JOB_ANNOTATION),
            f"unsupported value {ends!r}",
            'write "true", or remove it',
        )
    for name in (IMAGE_ANNOTATION, ENDS_WITH_JOB_ANNOTATION):
        if name in job.annotations and job.tensorboard is None and LOG_DIR_ANNOTATION not in job.annotations:
            yield Problem(
                join_path("metadata.annotations", name),
                f"has no effect without {LOG_DIR_ANNOTATION}",
                "add that, or remove this one",
            )


def _annotated(job: TrainingJob, main: str) -> TensorBoardSpec | None:
    """A TensorBoard with the volume mounts of the chief, which usually writes the summaries."""
    folder, chief = job.annotations.get(LOG_DIR_ANNOTATION), job.chief
    group = job.replica_spec(chief.type) if chief is not None else None
    if not folder or group is None:
        return None
    container = main_container(group.template, main) or {}
    mounts = [_without_subpath_expr(mount) for mount in container.get("volumeMounts", [])]
    mounted = {mount.get("name") for mount in mounts}
    volumes = [each for each in group.template.get("spec", {}).get("volumes", []) if each.get("name") in mounted]
    return TensorBoardSpec(log_dir=folder, image=str(container.get("image", "")), volumes=volumes, volume_mounts=mounts)


def _without_subpath_expr(mount: JsonObject) -> Mapping[str, object]:
    """The mount without subPathExpr, which gives each replica its own directory; comparing them takes the parent."""
    return {name: value for name, value in mount.items() if name != "subPathExpr"}
