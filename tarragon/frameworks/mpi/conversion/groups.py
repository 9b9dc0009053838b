"""Converts the replicas of an MPIJob: one template into two, two into one, or with other restart policies."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import WORKER as WORKER_TYPE
from tarragon.frameworks.mpi.conversion.failures import all_failures_are_final
from tarragon.frameworks.mpi.conversion.generations import BATCH_JOB_POLICIES, MPIJobGeneration
from tarragon.frameworks.mpi.conversion.normalized_spec import LAUNCHER, TYPES, WORKER
from tarragon.frameworks.mpi.fields import IDLE_COMMAND
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.frameworks.mpi.options import Transport
from tarragon.job.model import RestartPolicy, TrainingJob
from tarragon.kube.meta import Json, JsonObject

_PROGRAM = ("command", "args")
_BEFORE_THE_TEMPLATE = ("word", "replicas", "restartPolicy")
_DEFAULT_REPLICAS = {LAUNCHER: 1, WORKER: 0}


def convert_replicas(
    found: NormalizedSpec, job: TrainingJob, source: MPIJobGeneration, target: MPIJobGeneration
) -> dict[str, Json]:
    """The replicas by role. `job` is as decoded by the source."""
    given: dict[str, Json] = found["groups"]
    if source.has_one_template:
        given = _two_templates(given, job)
    elif source.transport is Transport.EXEC and target.transport is Transport.SSH:
        given = {role: _without_idle_command_of(role, fields) for role, fields in given.items()}
    policies = {role: _restart_policy(role, fields, job, source, target) for role, fields in given.items()}
    if target.has_one_template:
        return _one_template(given, job, policies.get(LAUNCHER, target.launcher_restarts))
    converted: dict[str, Json] = {}
    for role, fields in given.items():
        group = job.replica_spec(TYPES[role])
        if group is None or (role == WORKER and group.replicas < target.least_workers):
            continue
        own = dict(fields)
        if own.get("replicas", _DEFAULT_REPLICAS[role]) != group.replicas:
            own["replicas"] = group.replicas
        if "restartPolicy" in own or {policies[role]} != {_default_policy(role, each) for each in (source, target)}:
            own["restartPolicy"] = policies[role].value
        first = {name: own.pop(name) for name in _BEFORE_THE_TEMPLATE if name in own}
        converted[role] = {**first, **own}
    return converted


def _without_idle_command_of(role: str, fields: JsonObject) -> JsonObject:
    if role != WORKER or "template" not in fields:
        return fields
    return {**fields, "template": _without_idle_command(fields["template"])}


def _without_idle_command(template: JsonObject) -> JsonObject:
    """The template of workers without `sleep` as its command, so that they get the default command."""
    first, *others = template.get("spec", {}).get("containers") or [{}]
    if tuple(first.get("command", ())) != IDLE_COMMAND or "args" in first:
        return template
    return _with_containers(template, [_without(first, "command"), *others])


def _two_templates(given: Mapping[str, JsonObject], job: TrainingJob) -> dict[str, Json]:
    templates = [group.get("template", {}).get("spec", {}) for group in given.values()]
    is_never = any(spec.get("restartPolicy") == RestartPolicy.NEVER for spec in templates)
    policies = {LAUNCHER: {"restartPolicy": (RestartPolicy.NEVER if is_never else RestartPolicy.ON_FAILURE).value}}
    return {
        role: {"word": str(kind), **policies.get(role, {}), "template": _without_idle_command(group.template)}
        for role, kind in TYPES.items()
        if (group := job.replica_spec(kind)) is not None and group.replicas
    }


def _one_template(given: Mapping[str, JsonObject], job: TrainingJob, policy: RestartPolicy) -> dict[str, Json]:
    """The template of the workers, which has their resources, with the program of the launcher."""
    workers = job.replica_spec(WORKER_TYPE)
    replicas = 0 if workers is None else workers.replicas
    launchers = given.get(LAUNCHER, {}).get("template", {})
    base = given[WORKER].get("template", {}) if replicas else launchers
    program, *_ = launchers.get("spec", {}).get("containers") or [{}]
    first, *others = base.get("spec", {}).get("containers") or [{}]
    own = {name: program[name] for name in _PROGRAM if name in program}
    whole = _with_containers(base, [{**_without(first, *_PROGRAM), **own}, *others])
    spec = _without(whole["spec"], "restartPolicy")
    if policy is RestartPolicy.NEVER:
        spec["restartPolicy"] = policy.value
    template = {"template": {**whole, "spec": spec}}
    return {WORKER: {"replicas": replicas, **template}} if replicas else {LAUNCHER: template, WORKER: {"replicas": 0}}


def _restart_policy(
    role: str, fields: JsonObject, job: TrainingJob, source: MPIJobGeneration, target: MPIJobGeneration
) -> RestartPolicy:
    """The nearest restart policy that the target has."""
    default = _default_policy(role, source)
    written = next((policy for policy in RestartPolicy if policy == fields.get("restartPolicy")), default)
    is_launcher = role == LAUNCHER
    if target.engine is LauncherEngine.POD and source.engine is LauncherEngine.BATCH_JOB:
        if all_failures_are_final(job):
            return RestartPolicy.NEVER
        return RestartPolicy.ON_FAILURE if is_launcher else written
    is_of_batch_job = is_launcher and target.engine is LauncherEngine.BATCH_JOB
    valid = BATCH_JOB_POLICIES if is_of_batch_job else target.valid_restarts
    return written if written in valid else RestartPolicy.ON_FAILURE


def _default_policy(role: str, generation: MPIJobGeneration) -> RestartPolicy:
    return generation.launcher_restarts if role == LAUNCHER else generation.worker_restarts


def _with_containers(template: JsonObject, containers: list[JsonObject]) -> dict[str, Json]:
    return {**template, "spec": {**template.get("spec", {}), "containers": containers}}


def _without(fields: JsonObject, *names: str) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if name not in names}
