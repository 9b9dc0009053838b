"""Validation rules of TFJob. All of them run, so that all problems are reported at once."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.gpu_shares import gpu_shares, ignored_gpu_share_settings, job_has_no_gpu_share
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.pod_rules import POD_RULES
from tarragon.frameworks.kubeflow.rules import (
    at_most_one,
    chief_is_not_always_restarted,
    has_main_container,
    json_logs_have_a_command,
    min_available_is_effective,
    names_fit,
)
from tarragon.frameworks.plugin import Rule
from tarragon.frameworks.tensorflow.fields import SpecField
from tarragon.frameworks.tensorflow.replica_types import CHIEF, EVALUATOR, MASTER
from tarragon.frameworks.tensorflow.shape import NAMES, SHAPE
from tarragon.frameworks.tensorflow.tf_config import MAX_HOST_LENGTH, MAX_LENGTH, cluster_size, tf_config_length
from tarragon.job.annotations import validate_annotations, warn_about_misspelled_annotations
from tarragon.job.model import TrainingJob
from tarragon.job.tensorboard import validate_tensorboard

REPLICAS = f"spec.{SpecField.REPLICAS}"
CHIEFS = (CHIEF, MASTER)


def has_chief_or_worker(job: TrainingJob) -> Iterator[Problem]:
    """A job needs a chief or a worker, because only these decide its success; a server runs forever."""
    if job.chief is not None:
        return
    types = [str(group.type) for group in job.replica_specs if group.replicas]
    if types:
        yield Problem(REPLICAS, f"a job of {' and '.join(types)} alone never ends", "add a Worker or a Chief")
    elif job.replica_specs:
        yield Problem(REPLICAS, "has no replicas", "set the replicas of a Worker or a Chief to 1 or more")
    else:
        yield Problem(REPLICAS, "is empty", "add a Worker or a Chief")


def one_chief(job: TrainingJob) -> Iterator[Problem]:
    """A job has at most one Chief or Master, which are two names for the same replica."""
    chiefs = [group for group in job.replica_specs if group.type in CHIEFS]
    for group in chiefs:
        yield from at_most_one(group)
    if len(chiefs) > 1:
        yield Problem(chiefs[1].field_path, "duplicates the Chief, as both mean the same", "remove one of the two")


def one_evaluator(job: TrainingJob) -> Iterator[Problem]:
    group = job.replica_spec(EVALUATOR)
    if group is not None:
        yield from at_most_one(group)


def elastic_bounds(job: TrainingJob) -> Iterator[Problem]:
    if job.elastic_policy is None:
        return
    least, most = job.elastic_policy.min_replicas, job.elastic_policy.max_replicas
    if least > most:
        yield Problem(
            f"spec.{SpecField.MIN_INSTANCES}", f"must be {most} or less, as {SpecField.MAX_INSTANCES} is, not {least}"
        )
    if job.replica_spec(WORKER) is None:
        yield Problem(REPLICAS, f"has no Worker, but {SpecField.MAX_INSTANCES} counts workers", "add a Worker")


def tf_config_fits(job: TrainingJob) -> Iterator[Problem]:
    """TF_CONFIG must not exceed the limit of Linux, or no container would start, without a helpful message."""
    if job.runtime_id or sum(cluster_size(job, job.requested_size()).values()) * MAX_HOST_LENGTH < MAX_LENGTH:
        return
    length = tf_config_length(job)
    if length > MAX_LENGTH:
        yield Problem(
            REPLICAS,
            f"gives a TF_CONFIG of {length} bytes, more than the {MAX_LENGTH} that Linux allows",
            f"use fewer replicas, a shorter name, or {SpecField.DYNAMIC_WORKER}",
        )


RULES: tuple[Rule, ...] = (
    has_chief_or_worker,
    one_chief,
    one_evaluator,
    *POD_RULES,
    gpu_shares,
    job_has_no_gpu_share,
    has_main_container(SHAPE),
    names_fit(NAMES.pod, cluster_size),
    elastic_bounds,
    tf_config_fits,
    validate_annotations,
)

WARNING_RULES: tuple[Rule, ...] = (
    chief_is_not_always_restarted,
    ignored_gpu_share_settings,
    warn_about_misspelled_annotations,
    validate_tensorboard,
    json_logs_have_a_command(SHAPE),
    min_available_is_effective(f"if the job can run with fewer workers, set spec.{SpecField.MIN_INSTANCES}"),
)
