"""What a TFJob must be beyond its shape. Every rule is asked, so that all problems are told at once."""

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
    """Success is a chief's word, or worker 0's; a server serves for ever."""
    if job.chief is not None:
        return
    wished = [group.type.value for group in job.groups if group.wish]
    if wished:
        yield Problem(REPLICAS, f"a job of {' and '.join(wished)} alone never ends", "add a Worker or a Chief")
    elif job.groups:
        yield Problem(REPLICAS, "has not a single replica", "set the replicas of a Worker or a Chief to 1 or more")
    else:
        yield Problem(REPLICAS, "is empty", "add a Worker or a Chief")


def one_chief(job: TrainingJob) -> Iterator[Problem]:
    """Chief and Master are two words for one replica."""
    chiefs = [group for group in job.groups if group.type in CHIEFS]
    for group in chiefs:
        yield from _at_most_one(group)
    if len(chiefs) > 1:
        yield Problem(chiefs[1].path, "stands beside a Chief, and both mean the same", "remove one of the two")


def one_evaluator(job: TrainingJob) -> Iterator[Problem]:
    group = job.group(ReplicaType.EVALUATOR)
    if group is not None:
        yield from _at_most_one(group)


def main_container(job: TrainingJob) -> Iterator[Problem]:
    """Its exit code is the replica's, and it is told where the others are."""
    for group in job.groups:
        containers = group.template.get("spec", {}).get("containers", [])
        names = [container.get("name", "") for container in containers]
        if names and MAIN_CONTAINER not in names:
            yield Problem(
                f"{group.path}.template.spec.containers",
                f"none is called {MAIN_CONTAINER}",
                f"call the one that trains {MAIN_CONTAINER}, not {' or '.join(filter(None, names)) or 'nothing'}",
            )


def names_fit(job: TrainingJob) -> Iterator[Problem]:
    """The longest names are those with the highest index; services are the strictest about them."""
    if not job.key.name or job.runtime_id:
        return  # With a runtime id names are others: the generation has rules of its own.
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
        yield Problem(REPLICAS, f"has no Worker, and {Spec.MAX_INSTANCES} counts workers", "add a Worker")


def tf_config_fits(job: TrainingJob) -> Iterator[Problem]:
    """A longer variable would stop every single container from starting, with words that help nobody."""
    if job.runtime_id or sum(listed_size(job, job.wished()).values()) * LONGEST_HOST < LONGEST:
        return
    length = tf_config_length(job)
    if length > LONGEST:
        yield Problem(
            REPLICAS,
            f"gives a TF_CONFIG of {length} bytes, and Linux starts no program with more than {LONGEST}",
            f"use fewer replicas, a shorter name, or {Spec.DYNAMIC_WORKER}",
        )


def decider_ends(job: TrainingJob) -> Iterator[Problem]:
    """A caution: it is legal, and waits for ever."""
    chief = job.chief
    group = job.group(chief.type) if chief is not None else None
    if chief is not None and group is not None and job.policy_of(chief) is RestartPolicy.ALWAYS:
        yield Problem(
            f"{group.path}.restartPolicy",
            "Always starts it again even after success, so that the job never ends",
            "write OnFailure",
        )


def json_logs_have_a_command(job: TrainingJob) -> Iterator[Problem]:
    """A caution: what an image runs by itself is not known, and so can't be run by us."""
    if job.annotations.get(LOGS) != "json":
        return
    for group in job.groups:
        container = podtemplate.main_container(group.template, MAIN_CONTAINER)
        if container is None or group.is_default_server or container.get("command"):
            continue
        if not any(variable.get("name") == "PYTHONPATH" for variable in container.get("env", [])):
            yield Problem(
                f"{group.path}.template.spec.containers",
                "logs plain text in spite of the annotation: without a command its image decides what runs",
                "give it a command, or set PYTHONPATH in its env",
            )


def starts_whole(job: TrainingJob) -> Iterator[Problem]:
    """A caution: other schedulers start the first pods without the rest, who were told of more than there are then."""
    least = job.run_policy.scheduling.min_available
    names_one = any(group.template.get("spec", {}).get("schedulerName") for group in job.groups)
    if least is None or names_one or job.elastic is not None or least >= sum(group.wish for group in job.groups):
        return
    yield Problem(
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "only counts where another scheduler places the job: this one starts with all of its replicas",
        f"for a job that can do with fewer workers write spec.{Spec.MIN_INSTANCES}",
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
