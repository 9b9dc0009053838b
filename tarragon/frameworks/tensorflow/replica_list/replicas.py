"""Decodes the items of `spec.replicaSpecs`, and writes them back with the defaults that the operator fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tarragon.frameworks.kubeflow.pod_rules import MAX_PORT
from tarragon.frameworks.plugin import Manifest
from tarragon.frameworks.tensorflow.fields import DEFAULT_PORT, LIST_SPELLINGS, SpecField
from tarragon.frameworks.tensorflow.replica_list import default_server
from tarragon.frameworks.tensorflow.replica_types import LIST_TYPES, MASTER, PS, ROLES
from tarragon.job.model import ReplicaSpec, ReplicaType, RestartPolicy
from tarragon.job.replica_ranges import MAX_REPLICAS
from tarragon.kube.field_reader import FieldReader, describe_value, nearest_name, suggestion
from tarragon.kube.merge_patch import without_nulls
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import validated

TYPE = ("tfReplicaType", "tf_replica_type")
PORT = ("tfPort", "tf_port")
DEFAULT_SERVER_FIELD = "IsDefaultPS"
"""Set by the operator of late 2017 on a default parameter server. Tarragon recognises one without it."""

FIELDS = frozenset({"replicas", "template", DEFAULT_SERVER_FIELD, *TYPE, *PORT})
POD_POLICIES = ("Always", "OnFailure", "Never")

_WORDS = {kind.upper(): kind for kind in LIST_TYPES}


def replica_list(spec: FieldReader) -> FieldReader:
    return any_spelling(spec, *LIST_SPELLINGS)


def without_scaled_size(manifest: Manifest) -> Manifest:
    """The job without spec.tfReplicaSpecs beside a list of replicas.

    `kubectl scale` writes it there, and it would take precedence over the number in the list.
    """
    spec = manifest["spec"]
    if not any(name in spec for name in LIST_SPELLINGS) or SpecField.REPLICAS not in spec:
        return manifest
    return {**manifest, "spec": {name: value for name, value in spec.items() if name != SpecField.REPLICAS}}


def any_spelling(found: FieldReader, *names: str) -> FieldReader:
    """The first of these fields that is not missing, else the first one."""
    present = (field for name in names if not (field := found.field(name)).is_missing)
    return next(present, found.field(names[0]))


def decode_replica_specs(found: FieldReader, image: str, config_map: str) -> list[ReplicaSpec]:
    """Decode the groups in the order of the list. `image` and `config_map` are for the default parameter server."""
    if found.is_missing:
        found.add_problem("is missing", "define the replicas of the job")
    groups: dict[ReplicaType, ReplicaSpec] = {}
    for item in found.items():
        kind = _type(item)
        if kind is None:
            continue
        if kind in groups:
            any_spelling(item, *TYPE).add_problem(
                f"{groups[kind].field_path} is of the same type", "write each type once"
            )
        else:
            groups[kind] = _group(kind, item, image, config_map)
    return list(groups.values())


def with_defaults(items: Json, groups: Mapping[str, ReplicaSpec], image: str) -> list[Json]:
    """The list with defaults filled in. What users wrote does not change."""
    return [
        _filled(item, groups.get(_word(item)), image) if isinstance(item, Mapping) else item
        for item in (items if isinstance(items, list | tuple) else ())
    ]


def _filled(item: JsonObject, group: ReplicaSpec | None, image: str) -> JsonObject:
    written: dict[str, Json] = without_nulls(item)
    if group is None:
        return written
    if group.runs_provided_program:
        template = written.get("template")
        written["template"] = default_server.with_server_container(
            template if isinstance(template, Mapping) else {}, image
        )
    is_old = TYPE[1] in written or PORT[1] in written
    port, kind = PORT[is_old], TYPE[is_old]
    return {"replicas": 1, port: DEFAULT_PORT, kind: group.type.upper(), **written}


def _word(item: JsonObject) -> str:
    return next((str(item[name]) for name in TYPE if item.get(name)), MASTER.upper())


def _type(item: FieldReader) -> ReplicaType | None:
    """The type as in the original operator: in upper case, MASTER by default."""
    if not item.is_map():
        if item.is_missing:
            item.add_problem("is empty", "remove the dash, or add a value")
        return None
    written = any_spelling(item, *TYPE)
    word = written.string() or MASTER.upper()
    if word in _WORDS:
        return _WORDS[word]
    suggested = nearest_name(word, _WORDS)
    remedy = f"did you mean {suggested}?" if suggested is not None else ""
    written.add_problem(f"must be MASTER, PS or WORKER, not {describe_value(word)}", remedy)
    return _WORDS[suggested] if suggested is not None else None


def _group(kind: ReplicaType, item: FieldReader, image: str, config_map: str) -> ReplicaSpec:
    template = item.field("template")
    if kind == PS:
        template = _with_container_list(template)
    valid: JsonObject = validated(template) or {}
    may_be_default = kind == PS and (template.is_missing or isinstance(template.value, dict))
    is_default = may_be_default and default_server.uses_default_server(valid)
    if is_default:
        valid = default_server.with_script_volume(default_server.with_server_container(valid, image), config_map)
    elif template.is_missing:
        template.add_problem("is missing", "add a pod template")
    _note_fields(item, template)
    return ReplicaSpec(
        type=kind,
        role=ROLES[kind],
        replicas=_wish(kind, item),
        restart_policy=RestartPolicy.ALWAYS,
        template=valid,
        port=any_spelling(item, *PORT).integer(1, MAX_PORT) or DEFAULT_PORT,
        pod_restart_policy_override=_pod_policy(valid, template),
        runs_provided_program=is_default,
        field_path=item.path,
    )


def _with_container_list(template: FieldReader) -> FieldReader:
    """The template with an empty list of containers, which a default server may omit: it may still say where to run."""
    spec = template.field("spec")
    if not isinstance(spec.value, dict) or not spec.field("containers").is_missing:
        return template
    return replace(template, value={**template.value, "spec": {**spec.value, "containers": []}})


def _wish(kind: ReplicaType, item: FieldReader) -> int:
    found = item.field("replicas")
    replicas = found.integer(0, MAX_REPLICAS)
    if kind == MASTER and replicas not in {None, 1}:
        found.add_problem(f"must be 1, not {replicas}", "a job has one MASTER")
        return 1
    return 1 if replicas is None else replicas


def _pod_policy(valid: JsonObject, template: FieldReader) -> str:
    """The restartPolicy of the pods. The default is Always, as in Kubernetes, which restarts even after success."""
    policy = valid.get("spec", {}).get("restartPolicy", "Always")
    if policy in POD_POLICIES:
        return str(policy)
    found = template.field("spec").field("restartPolicy")
    found.add_problem(
        f"must be Always, OnFailure or Never, not {describe_value(policy)}", suggestion(policy, POD_POLICIES)
    )
    return "Always"


def _note_fields(item: FieldReader, template: FieldReader) -> None:
    later = item.field("restartPolicy")
    if not later.is_missing:
        later.add_unknown_field(f"write it as {template.path}.spec.restartPolicy")
    item.note_unknown_fields({*FIELDS, "restartPolicy"})
