"""A TensorBoard beside a job of any generation, asked for by annotations: its folder, its image, how long it serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon.base.errors import Problem
from tarragon.job.model import TensorBoard, TrainingJob
from tarragon.kube.meta import JsonObject
from tarragon.kube.podtemplate import main_container
from tarragon.kube.reader import joined

FOLDER = "tarragon.dev/tensorboard"
"""What --logdir is: a folder as the container that trains sees it, or anything else that TensorBoard reads."""
IMAGE = "tarragon.dev/tensorboard-image"
"""Where not given, the image that trains: TensorFlow's have TensorBoard."""
ENDS_WITH_JOB = "tarragon.dev/tensorboard-ends-with-job"
"""`true`, or it serves until the job is deleted."""

_TRUTHS = ("true", "false")


def with_tensorboard(job: TrainingJob, main: str) -> TrainingJob:
    """`main` is the name of the container that trains. What a generation has fields for, the annotations complete."""
    found = job.tensorboard or _annotated(job, main)
    if found is None:
        return job
    image = job.annotations.get(IMAGE) or found.image
    ends = found.ends_with_job or job.annotations.get(ENDS_WITH_JOB) == "true"
    return replace(job, tensorboard=replace(found, image=image, ends_with_job=ends))


def tensorboard_is_understood(job: TrainingJob) -> Iterator[Problem]:
    """An annotation with a slip in it would be as good as none."""
    if job.annotations.get(FOLDER) == "":
        yield Problem(joined("metadata.annotations", FOLDER), "is empty", "write the folder that the summaries are in")
    ends = job.annotations.get(ENDS_WITH_JOB, "true")
    if ends not in _TRUTHS:
        yield Problem(
            joined("metadata.annotations", ENDS_WITH_JOB), f"has no meaning as {ends!r}", 'write "true", or remove it'
        )
    for name in (IMAGE, ENDS_WITH_JOB):
        if name in job.annotations and job.tensorboard is None and FOLDER not in job.annotations:
            yield Problem(
                joined("metadata.annotations", name), f"has no effect without {FOLDER}", "add that, or remove this"
            )


def _annotated(job: TrainingJob, main: str) -> TensorBoard | None:
    """It mounts what the replica mounts that decides the job, which usually is the one that writes."""
    folder, chief = job.annotations.get(FOLDER), job.chief
    group = job.group(chief.type) if chief is not None else None
    if not folder or group is None:
        return None
    container = main_container(group.template, main) or {}
    mounts = [_whole(mount) for mount in container.get("volumeMounts", [])]
    mounted = {mount.get("name") for mount in mounts}
    volumes = [each for each in group.template.get("spec", {}).get("volumes", []) if each.get("name") in mounted]
    return TensorBoard(log_dir=folder, image=str(container.get("image", "")), volumes=volumes, mounts=mounts)


def _whole(mount: JsonObject) -> Mapping[str, object]:
    """A subPathExpr names a folder for each replica: to compare them it takes what is above."""
    return {name: value for name, value in mount.items() if name != "subPathExpr"}
