"""Validation rules of TFJob. All of them run, so that all problems are reported at once."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.fractions import asks_for_fractions
from tarragon.frameworks.plugin import Rule
from tarragon.frameworks.podrules import POD_RULES
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER, Spec
from tarragon.frameworks.tensorflow.naming import name
from tarragon.frameworks.tensorflow.wiring import LONGEST, LONGEST_HOST, listed_size, tf_config_length
from tarragon.job.annotations import LOGS, annotations_are_spelled, annotations_are_understood
from tarragon.job.model import Replica, ReplicaGroup, ReplicaType, RestartPolicy, TrainingJob
from tarragon.job.tensorboard import tensorboard_is_understood
from tarragon.kube import podtemplate
from tarragon.kube.names import fault_of_label_name

REPLICAS = f"spec.{Spec.REPLICAS}"
CHIEFS = (ReplicaType.CHIEF, ReplicaType.MASTER)


def somebody_decides(job: TrainingJob) -> Iterator[Problem]:
    """A job needs a chief or a worker, because only these decide its success; a server runs forever."""
    if job.chief is not None:
        return
    types = [group.type.value for group in job.groups if group.wish]
    if types:
        yield Problem(REPLICAS, f"a job of {' and '.join(types)} alone never ends", "add a Worker or a Chief")
    elif job.groups:
        yield Problem(REPLICAS, "has no replicas", "set the replicas of a Worker or a Chief to 1 or more")
    else:
        yield Problem(REPLICAS, "is empty", "add a Worker or a Chief")


def one_chief(job: TrainingJob) -> Iterator[Problem]:
    """A job has at most one Chief or Master, which are two names for the same replica."""
    chiefs = [group for group in job.groups if group.type in CHIEFS]
    for group in chiefs:
        yield from _at_most_one(group)
    if len(chiefs) > 1:
        yield Problem(chiefs[1].path, "duplicates the Chief, as both mean the same", "remove one of the two")


def one_evaluator(job: TrainingJob) -> Iterator[Problem]:
    group = job.group(ReplicaType.EVALUATOR)
    if group is not None:
        yield from _at_most_one(group)


def main_container(job: TrainingJob) -> Iterator[Problem]:
    """Each pod needs the main container, whose exit code counts for the replica and which gets TF_CONFIG."""
    for group in job.groups:
        containers = group.template.get("spec", {}).get("containers", [])
        names = [container.get("name", "") for container in containers]
        if names and MAIN_CONTAINER not in names:
            yield Problem(
                f"{group.path}.template.spec.containers",
                f"no container is named {MAIN_CONTAINER}",
                f"name the one that trains {MAIN_CONTAINER}, not {' or '.join(filter(None, names)) or 'nothing'}",
            )


def names_fit(job: TrainingJob) -> Iterator[Problem]:
    """The names of all replicas must be valid names of Services. The highest index gives the longest name."""
    if not job.key.name or job.runtime_id:
        return  # Generations with a runtime id have other names and rules of their own.
    listed = listed_size(job, job.wished())
    longest = max((name(job, Replica(kind, count - 1)) for kind, count in listed.items() if count), key=len, default="")
    fault = fault_of_label_name(longest or job.key.name)
    if fault is not None:
        excess = len(longest) - 63
        remedy = f"shorten it by {excess}" if excess > 0 else "write letters, digits and dashes, a letter first"
        yield Problem("metadata.name", f"gives a replica the name {longest or job.key.name}, which {fault}", remedy)


def elastic_bounds(job: TrainingJob) -> Iterator[Problem]:
    if job.elastic is None:
        return
    least, most = job.elastic.minimum, job.elastic.maximum
    if least > most:
        yield Problem(f"spec.{Spec.MIN_INSTANCES}", f"must be {most} or less, as {Spec.MAX_INSTANCES} is, not {least}")
    if job.group(ReplicaType.WORKER) is None:
        yield Problem(REPLICAS, f"has no Worker, but {Spec.MAX_INSTANCES} counts workers", "add a Worker")


def tf_config_fits(job: TrainingJob) -> Iterator[Problem]:
    """TF_CONFIG must not exceed the limit of Linux, or no container would start, without a helpful message."""
    if job.runtime_id or sum(listed_size(job, job.wished()).values()) * LONGEST_HOST < LONGEST:
        return
    length = tf_config_length(job)
    if length > LONGEST:
        yield Problem(
            REPLICAS,
            f"gives a TF_CONFIG of {length} bytes, more than the {LONGEST} that Linux allows",
            f"use fewer replicas, a shorter name, or {Spec.DYNAMIC_WORKER}",
        )


def decider_ends(job: TrainingJob) -> Iterator[Problem]:
    """Warn if the chief has restartPolicy Always: the job is legal, but never ends."""
    chief = job.chief
    group = job.group(chief.type) if chief is not None else None
    if chief is not None and group is not None and job.policy_of(chief) is RestartPolicy.ALWAYS:
        yield Problem(
            f"{group.path}.restartPolicy",
            "Always restarts the replica even after success, so that the job never ends",
            "write OnFailure",
        )


def json_logs_have_a_command(job: TrainingJob) -> Iterator[Problem]:
    """Warn if JSON logs are requested without a command: the operator can't wrap the unknown command of an image."""
    if job.annotations.get(LOGS) != "json":
        return
    for group in job.groups:
        container = podtemplate.main_container(group.template, MAIN_CONTAINER)
        if container is None or group.is_default_server or container.get("command"):
            continue
        if not any(variable.get("name") == "PYTHONPATH" for variable in container.get("env", [])):
            yield Problem(
                f"{group.path}.template.spec.containers",
                "logs plain text despite the annotation, because it has no command that could be wrapped",
                "add a command, or set PYTHONPATH in its env",
            )


def starts_whole(job: TrainingJob) -> Iterator[Problem]:
    """Warn if minAvailable asks for a partial start, which Tarragon's scheduler does not do.

    Other schedulers start the first pods without the rest, although TF_CONFIG lists all of them.
    """
    least = job.run_policy.scheduling.min_available
    names_one = any(group.template.get("spec", {}).get("schedulerName") for group in job.groups)
    if least is None or names_one or job.elastic is not None or least >= sum(group.wish for group in job.groups):
        return
    yield Problem(
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "only has an effect with another scheduler: Tarragon starts a job with all of its replicas",
        f"if the job can run with fewer workers, set spec.{Spec.MIN_INSTANCES}",
    )


def _at_most_one(group: ReplicaGroup) -> Iterator[Problem]:
    if group.wish > 1:
        yield Problem(f"{group.path}.replicas", f"must be 1 or less, not {group.wish}", f"a job has one {group.type}")


RULES: tuple[Rule, ...] = (
    somebody_decides,
    one_chief,
    one_evaluator,
    *POD_RULES,
    main_container,
    names_fit,
    elastic_bounds,
    tf_config_fits,
    annotations_are_understood,
)

CAUTIONS: tuple[Rule, ...] = (
    decider_ends,
    annotations_are_spelled,
    tensorboard_is_understood,
    json_logs_have_a_command,
    starts_whole,
)

UNSUPPORTED: tuple[Rule, ...] = (asks_for_fractions,)
