"""Converts replicas between generations: a list into a map, a map into a list, or unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.conversion.generations import TFJobGeneration
from tarragon.frameworks.tensorflow.conversion.normalized_spec import CHIEF, UNSCALED, type_of
from tarragon.frameworks.tensorflow.fields import DEFAULT_PORT, MAIN_CONTAINER, PORT_NAME
from tarragon.frameworks.tensorflow.replica_list.default_server import SCRIPT, VOLUME, script
from tarragon.frameworks.tensorflow.replica_types import MASTER, PS
from tarragon.job.model import ReplicaSpec, RestartPolicy, TrainingJob
from tarragon.kube.meta import Json, JsonObject

_TRANSLATED = frozenset({"word", "words", UNSCALED, "template", "tfPort", "IsDefaultPS", "restartPolicy"})
_TYPES_OF_A_LIST = {CHIEF: MASTER, "ps": PS, "worker": WORKER}
_SERVER_ARGUMENTS = f"""\
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
groups = sorted(config["cluster"].items())
cluster = ",".join("%s|%s" % (kind, ";".join(hosts)) for kind, hosts in groups)
task = config["task"]
program = sys.argv.pop()
sys.argv[1:] = ["--cluster_spec", cluster, "--job_name", task["type"], "--task_id", str(task["index"])]
exec(compile(program, "{SCRIPT}", "exec"))
"""
"""The default server gets its cluster from the command line, all other containers from TF_CONFIG."""

_SERVER_COMMAND = ("sh", "-c", 'exec "$(command -v python || command -v python3)" "$@"', "python", "-c")


def convert_replicas(
    found: NormalizedSpec, job: TrainingJob, source: TFJobGeneration, target: TFJobGeneration
) -> dict[str, Json]:
    """The replicas by role, without those that the target does not have. `job` is as decoded by the source."""
    translated = _translation(source, target)
    converted: dict[str, Json] = {}
    for role, fields in found["groups"].items():
        group = job.replica_spec(type_of(role, fields.get("word", "MASTER" if source.is_list else "")))
        if group is not None and not (target.is_list and role not in _TYPES_OF_A_LIST):
            converted[role] = {**translated(role, fields, group, job), **_replicas(fields, group)}
    return converted


_Translation = Callable[[str, JsonObject, ReplicaSpec, TrainingJob], dict[str, Json]]


def _translation(source: TFJobGeneration, target: TFJobGeneration) -> _Translation:
    if source.is_list == target.is_list:
        return _unchanged
    return _into_list if target.is_list else _into_map


def _unchanged(_: str, fields: JsonObject, __: ReplicaSpec, ___: TrainingJob) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if name not in {"words", "IsDefaultPS", UNSCALED}}


def _replicas(fields: JsonObject, group: ReplicaSpec) -> dict[str, Json]:
    """The requested number, if it is not as written: bounds and `kubectl scale` may override it."""
    return {"replicas": group.replicas} if fields.get("replicas", 1) != group.replicas else {}


def _into_map(role: str, fields: JsonObject, group: ReplicaSpec, job: TrainingJob) -> dict[str, Json]:
    """Convert to a map, where pods get their restartPolicy from the group and not from the template."""
    template = _standard_server(group) if group.runs_provided_program else fields.get("template", {})
    template = _with_pod_spec(template, lambda spec: {n: v for n, v in spec.items() if n != "restartPolicy"})
    if group.port != _named_port(template):
        template = _with_port(template, group.port)
    policy = restart_policy_in_a_map(job, group).value
    said = {"restartPolicy": policy, "template": template}
    return {"word": _TYPES_OF_A_LIST[role], **_untranslated(fields), **said}


def restart_policy_in_a_map(job: TrainingJob, group: ReplicaSpec) -> RestartPolicy:
    """The nearest restart policy in a map: the chief is judged by exit codes, the others are restarted."""
    chief = job.chief
    if chief is not None and chief.type == group.type and group.replicas == 1 and job.chief_restart_policy is not None:
        return job.chief_restart_policy
    if group.restart_policy is RestartPolicy.ALWAYS and group.pod_restart_policy_override != RestartPolicy.ALWAYS.value:
        return RestartPolicy.ON_FAILURE
    return group.restart_policy


def _into_list(role: str, fields: JsonObject, group: ReplicaSpec, _: TrainingJob) -> dict[str, Json]:
    """Convert to a list, where the template has the restartPolicy of the pods."""
    template = _with_pod_spec(
        fields.get("template", {}), lambda spec: {**spec, "restartPolicy": group.restart_policy.pod_restart_policy}
    )
    port = {"tfPort": group.port} if group.port != DEFAULT_PORT else {}
    return {"word": _TYPES_OF_A_LIST[role].upper(), **_untranslated(fields), **port, "template": template}


def _untranslated(fields: JsonObject) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if name not in _TRANSLATED}


def _named_port(template: JsonObject) -> int:
    ports = [
        port.get("containerPort")
        for container in template.get("spec", {}).get("containers", [])
        if container.get("name") == MAIN_CONTAINER
        for port in container.get("ports", [])
        if port.get("name") == PORT_NAME
    ]
    return ports[0] if ports else DEFAULT_PORT


def _with_port(template: JsonObject, number: int) -> dict[str, Json]:
    def with_port(spec: JsonObject) -> dict[str, Json]:
        containers = [
            _container_with_port(each, number) if each.get("name") == MAIN_CONTAINER else each
            for each in spec.get("containers", [])
        ]
        return {**spec, "containers": containers}

    return _with_pod_spec(template, with_port)


def _container_with_port(container: JsonObject, number: int) -> dict[str, Json]:
    others = [port for port in container.get("ports", []) if port.get("name") != PORT_NAME]
    return {**container, "ports": [*others, {"name": PORT_NAME, "containerPort": number}]}


def _with_pod_spec(template: JsonObject, change: Callable[[JsonObject], Mapping[str, Json]]) -> dict[str, Json]:
    return {**template, "spec": dict(change(template.get("spec", {})))}


def _standard_server(group: ReplicaSpec) -> dict[str, Json]:
    """The template that the dialect created, with nothing that the operator would have to add."""
    spec = group.template.get("spec", {})
    containers = [
        _with_server(each) if each.get("name") == MAIN_CONTAINER else each for each in spec.get("containers", [])
    ]
    volumes = [each for each in spec.get("volumes", []) if each.get("name") != VOLUME]
    rest = {name: value for name, value in spec.items() if name != "volumes"}
    own = {**rest, "containers": containers, **({"volumes": volumes} if volumes else {})}
    return {**group.template, "spec": own}


def _with_server(container: JsonObject) -> dict[str, Json]:
    mounts = [mount for mount in container.get("volumeMounts", []) if mount.get("name") != VOLUME]
    rest = {name: value for name, value in container.items() if name != "volumeMounts"}
    return {
        **rest,
        "command": [*_SERVER_COMMAND, _SERVER_ARGUMENTS, script()],
        **({"volumeMounts": mounts} if mounts else {}),
    }
