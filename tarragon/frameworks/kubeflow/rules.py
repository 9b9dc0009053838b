"""Validation rules that all kinds of kubeflow.org share. Those that need a kind's shape or names are made for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from tarragon.base.errors import Problem
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.frameworks.plugin import GangSize, Rule
from tarragon.job.annotations import LOGS_ANNOTATION
from tarragon.job.model import Replica, ReplicaSpec, ReplicaType, RestartPolicy, TrainingJob
from tarragon.kube import pod_validation
from tarragon.kube.name_validation import DNS_LABEL_MAX_LENGTH, dns_label_error

NameOf = Callable[[TrainingJob, Replica], str]


def has_main_container(shape: KindShape) -> Rule:
    """Each pod needs the main container, whose exit code counts for the replica and which gets the configuration."""

    def rule(job: TrainingJob) -> Iterator[Problem]:
        for group in job.replica_specs:
            containers = group.template.get("spec", {}).get("containers", [])
            names = [container.get("name", "") for container in containers]
            if names and shape.main_container not in names:
                yield Problem(
                    f"{group.field_path}.template.spec.containers",
                    f"no container is named {shape.main_container}",
                    f"name the one that trains {shape.main_container}, "
                    f"not {' or '.join(filter(None, names)) or 'nothing'}",
                )

    return rule


def names_fit(name_of: NameOf, all_replicas: Callable[[TrainingJob, GangSize], GangSize]) -> Rule:
    """The names of all replicas that may ever exist must be valid names of Services."""

    def rule(job: TrainingJob) -> Iterator[Problem]:
        if not job.key.name or job.runtime_id:
            return  # Generations with a runtime id have other names and rules of their own.
        sizes = all_replicas(job, job.requested_size())
        # The highest index gives the longest name.
        highest = (name_of(job, Replica(kind, count - 1)) for kind, count in sizes.items() if count)
        longest = max(highest, key=len, default="") or job.key.name
        fault = dns_label_error(longest)
        if fault is not None:
            excess = len(longest) - DNS_LABEL_MAX_LENGTH
            remedy = f"shorten it by {excess}" if excess > 0 else "write letters, digits and dashes, a letter first"
            yield Problem("metadata.name", f"gives a replica the name {longest}, which {fault}", remedy)

    return rule


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


def json_logs_have_a_command(shape: KindShape, default_commands: Collection[ReplicaType] = ()) -> Rule:
    """Warn if JSON logs are requested without a command: the operator can't wrap the unknown command of an image.

    The operator has a command for the types in `default_commands`.
    """

    def rule(job: TrainingJob) -> Iterator[Problem]:
        if job.annotations.get(LOGS_ANNOTATION) != "json":
            return
        for group in job.replica_specs:
            container = pod_validation.main_container(group.template, shape.main_container)
            has_command = group.runs_provided_program or group.type in default_commands
            if container is None or has_command or container.get("command"):
                continue
            if not any(variable.get("name") == "PYTHONPATH" for variable in container.get("env", [])):
                yield Problem(
                    f"{group.field_path}.template.spec.containers",
                    "logs plain text despite the annotation, because it has no command that could be wrapped",
                    "add a command, or set PYTHONPATH in its env",
                )

    return rule


def min_available_is_effective(remedy: str) -> Rule:
    """Warn if minAvailable asks for a partial start, which Tarragon's scheduler does not do.

    Other schedulers start the first pods without the rest, although all replicas expect all others.
    """

    def rule(job: TrainingJob) -> Iterator[Problem]:
        least = job.run_policy.scheduling_policy.min_available
        names_one = any(group.template.get("spec", {}).get("schedulerName") for group in job.replica_specs)
        is_whole_gang = least is None or least >= sum(group.replicas for group in job.replica_specs)
        if not is_whole_gang and not names_one and job.elastic_policy is None:
            yield Problem(
                "spec.runPolicy.schedulingPolicy.minAvailable",
                "only has an effect with another scheduler: Tarragon starts a job with all of its replicas",
                remedy,
            )

    return rule


def at_most_one(group: ReplicaSpec) -> Iterator[Problem]:
    """A Problem if there is more than one replica of this type."""
    if group.replicas > 1:
        yield Problem(
            f"{group.field_path}.replicas", f"must be 1 or less, not {group.replicas}", f"a job has one {group.type}"
        )
