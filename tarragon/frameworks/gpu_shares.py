"""Rules about shares of GPUs, for all kinds of jobs: see `tarragon.kube.scheduling.gpu_shares` for their forms."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.job.annotations import ANNOTATIONS
from tarragon.job.model import TrainingJob
from tarragon.kube.field_reader import join_path
from tarragon.kube.scheduling.gpu_shares import ignored_settings, is_share_name, kubeshare_field, share_problems

DRAGON_ANNOTATION = "DRAGON_KUBESHARE"
"""Chose between two operators of DRAGON, with and without KubeShare. Tarragon runs the jobs of both, so it means
nothing, neither as an annotation of a job nor as a variable of its containers.
"""


def gpu_shares(job: TrainingJob) -> Iterator[Problem]:
    """Report every fault in the requests of the pod templates for shares of GPUs."""
    for group in job.replica_specs:
        yield from share_problems(f"{group.field_path}.template", group.template)


def job_has_no_gpu_share(job: TrainingJob) -> Iterator[Problem]:
    """A job itself requests no share, because its replicas may differ."""
    for field, values in (("labels", job.labels), ("annotations", job.annotations)):
        for name in values:
            belongs_to = kubeshare_field(name)
            if belongs_to is not None:
                remedy = f"move it to metadata.{belongs_to} of the pod template"
                path = join_path(f"metadata.{field}", name)
                yield Problem(path, "has no effect on a job, only on a pod template", remedy)
    switch = job.annotations.get(DRAGON_ANNOTATION, "false")
    if switch.lower() not in {"true", "false"}:
        message = f'must be "true" or "false", not {switch!r}'
        yield Problem(join_path(ANNOTATIONS, DRAGON_ANNOTATION), message, "remove it, because it has no effect")


def ignored_gpu_share_settings(job: TrainingJob) -> Iterator[Problem]:
    for group in job.replica_specs:
        yield from ignored_settings(f"{group.field_path}.template", group.template)


def is_gpu_share_name(name: str) -> bool:
    """Whether an annotation, label, resource or variable of this name belongs to a request for a share of a GPU."""
    return name == DRAGON_ANNOTATION or is_share_name(name)
