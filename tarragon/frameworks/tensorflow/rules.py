"""Validation rules of TFJob. All of them run, so that all problems are reported at once."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.gpu_fractions import no_gpu_fractions
from tarragon.frameworks.plugin import Rule
from tarragon.frameworks.pod_rules import POD_RULES
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER, SpecField
from tarragon.frameworks.tensorflow.object_names import name
from tarragon.frameworks.tensorflow.replica_types import CHIEF, EVALUATOR, MASTER, WORKER
from tarragon.frameworks.tensorflow.tf_config import MAX_HOST_LENGTH, MAX_LENGTH, cluster_size, tf_config_length
from tarragon.job.annotations import LOGS_ANNOTATION, validate_annotations, warn_about_misspelled_annotations
from tarragon.job.model import Replica, ReplicaSpec, RestartPolicy, TrainingJob
from tarragon.job.tensorboard import validate_tensorboard
from tarragon.kube import pod_validation
from tarragon.kube.name_validation import dns_label_error

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
        yield from _at_most_one(group)
    if len(chiefs) > 1:
        yield Problem(chiefs[1].field_path, "duplicates the Chief, as both mean the same", "remove one of the two")


def one_evaluator(job: TrainingJob) -> Iterator[Problem]:
    group = job.replica_spec(EVALUATOR)
    if group is not None:
        yield from _at_most_one(group)


def has_main_container(job: TrainingJob) -> Iterator[Problem]:
    """Each pod needs the main container, whose exit code counts for the replica and which gets TF_CONFIG."""
    for group in job.replica_specs:
        containers = group.template.get("spec", {}).get("containers", [])
        names = [container.get("name", "") for container in containers]
        if names and MAIN_CONTAINER not in names:
            yield Problem(
                f"{group.field_path}.template.spec.containers",
                f"no container is named {MAIN_CONTAINER}",
                f"name the one that trains {MAIN_CONTAINER}, not {' or '.join(filter(None, names)) or 'nothing'}",
            )


def names_fit(job: TrainingJob) -> Iterator[Problem]:
    """The names of all replicas must be valid names of Services. The highest index gives the longest name."""
    if not job.key.name or job.runtime_id:
        return  # Generations with a runtime id have other names and rules of their own.
    listed = cluster_size(job, job.requested_size())
    longest = max((name(job, Replica(kind, count - 1)) for kind, count in listed.items() if count), key=len, default="")
    fault = dns_label_error(longest or job.key.name)
    if fault is not None:
        excess = len(longest) - 63
        remedy = f"shorten it by {excess}" if excess > 0 else "write letters, digits and dashes, a letter first"
        yield Problem("metadata.name", f"gives a replica the name {longest or job.key.name}, which {fault}", remedy)


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


def chief_is_not_always_restarted(job: TrainingJob) -> Iterator[Problem]:
    """Warn if the chief has restartPolicy Always: the job is legal, but never ends."""
    chief = job.chief
    group = job.replica_spec(chief.type) if chief is not None else None
    if chief is not None and group is not None and job.restart_policy_of(chief) is RestartPolicy.ALWAYS:
        yield Problem(
            f"{group.field_path}.restartPolicy",
            "Always restarts the replica even after success, so that the job never ends",
            "write OnFailure",
        )


def json_logs_have_a_command(job: TrainingJob) -> Iterator[Problem]:
    """Warn if JSON logs are requested without a command: the operator can't wrap the unknown command of an image."""
    if job.annotations.get(LOGS_ANNOTATION) != "json":
        return
    for group in job.replica_specs:
        container = pod_validation.main_container(group.template, MAIN_CONTAINER)
        if container is None or group.runs_provided_program or container.get("command"):
            continue
        if not any(variable.get("name") == "PYTHONPATH" for variable in container.get("env", [])):
            yield Problem(
                f"{group.field_path}.template.spec.containers",
                "logs plain text despite the annotation, because it has no command that could be wrapped",
                "add a command, or set PYTHONPATH in its env",
            )


def min_available_is_effective(job: TrainingJob) -> Iterator[Problem]:
    """Warn if minAvailable asks for a partial start, which Tarragon's scheduler does not do.

    Other schedulers start the first pods without the rest, although TF_CONFIG lists all of them.
    """
    least = job.run_policy.scheduling_policy.min_available
    names_one = any(group.template.get("spec", {}).get("schedulerName") for group in job.replica_specs)
    if (
        least is None
        or names_one
        or job.elastic_policy is not None
        or least >= sum(group.replicas for group in job.replica_specs)
    ):
        return
    yield Problem(
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "only has an effect with another scheduler: Tarragon starts a job with all of its replicas",
        f"if the job can run with fewer workers, set spec.{SpecField.MIN_INSTANCES}",
    )


def _at_most_one(group: ReplicaSpec) -> Iterator[Problem]:
    if group.replicas > 1:
        yield Problem(
            f"{group.field_path}.replicas", f"must be 1 or less, not {group.replicas}", f"a job has one {group.type}"
        )


RULES: tuple[Rule, ...] = (
    has_chief_or_worker,
    one_chief,
    one_evaluator,
    *POD_RULES,
    has_main_container,
    names_fit,
    elastic_bounds,
    tf_config_fits,
    validate_annotations,
)

WARNING_RULES: tuple[Rule, ...] = (
    chief_is_not_always_restarted,
    warn_about_misspelled_annotations,
    validate_tensorboard,
    json_logs_have_a_command,
    min_available_is_effective,
)

UNSUPPORTED_RULES: tuple[Rule, ...] = (no_gpu_fractions,)
