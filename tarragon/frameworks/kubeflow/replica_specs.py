"""Decodes the map of replica specs. Types are compared without case, and templates are validated completely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.job.model import ReplicaSpec, ReplicaType, RestartPolicy
from tarragon.job.replica_ranges import MAX_REPLICAS
from tarragon.kube.field_reader import FieldReader, nearest_name, suggestion
from tarragon.kube.meta import JsonObject
from tarragon.kube.pod_validation import main_container, validated

FIELDS = ("replicas", "restartPolicy", "template")


def decode_replica_specs(
    found: FieldReader, shape: KindShape, restart_policies: Mapping[ReplicaType, RestartPolicy]
) -> Sequence[ReplicaSpec]:
    """Decode all replica groups, in the order of the types. `restart_policies` are the defaults other than Never."""
    if found.is_missing:
        found.add_problem("is missing", "define the replicas of the job")
    groups: dict[ReplicaType, ReplicaSpec] = {}
    written = {_type(name, shape) for name in (found.value if isinstance(found.value, Mapping) else ())}
    for name, value in found.fields():
        kind = _type(name, shape)
        if kind is None:
            known = [str(each) for each in shape.roles]
            value.add_wrong_name("unknown replica type", suggestion(name, known) or f"write one of {', '.join(known)}")
            meant = _meant_type(name, shape)
            group = _group(meant, value, shape, restart_policies.get(meant, RestartPolicy.NEVER))
            if meant not in written:
                # Without it, rules would report a type as missing that is only misspelled.
                groups.setdefault(meant, group)
        elif kind in groups:
            value.add_problem(f"is the same replica type as {groups[kind].field_path}", "write each type once")
        else:
            default = restart_policies.get(kind, RestartPolicy.NEVER)
            groups[kind] = _group(kind, value, shape, default)
    return [groups[kind] for kind in shape.roles if kind in groups]


def _type(name: str, shape: KindShape) -> ReplicaType | None:
    """The type of that name, compared without case as in the original operators."""
    return next((kind for kind in shape.roles if kind.lower() == name.lower()), None)


def _meant_type(name: str, shape: KindShape) -> ReplicaType:
    """The type that an unknown name is judged as: the nearest one, or else workers."""
    nearest = nearest_name(name, [str(each) for each in shape.roles])
    wanted = WORKER if nearest is None else nearest
    return next((kind for kind in shape.roles if kind == wanted), next(iter(shape.roles)))


def _group(kind: ReplicaType, found: FieldReader, shape: KindShape, default_policy: RestartPolicy) -> ReplicaSpec:
    template = found.field("template")
    if template.is_missing and (found.is_missing or found.is_map()):
        template.add_problem("is missing", "add a pod template")
    found.note_unknown_fields(FIELDS)
    policy = found.field("restartPolicy").enum(RestartPolicy, default_policy)
    _warn_about_pod_policy(found, template, policy)
    replicas = found.field("replicas").integer(0, MAX_REPLICAS)
    valid: JsonObject = validated(template) or {}
    return ReplicaSpec(
        type=kind,
        role=shape.roles[kind],
        replicas=1 if replicas is None else replicas,
        restart_policy=policy,
        template=valid,
        port=_port(valid, shape),
        field_path=found.path,
    )


def _port(template: JsonObject, shape: KindShape) -> int:
    """The port at which the other replicas reach this one."""
    container = main_container(template, shape.main_container) or {}
    ports = [each.get("containerPort") for each in container.get("ports", []) if each.get("name") == shape.port_name]
    return ports[0] if ports and ports[0] is not None else shape.default_port


def _warn_about_pod_policy(found: FieldReader, template: FieldReader, policy: RestartPolicy) -> None:
    own = template.field("spec").field("restartPolicy")
    if not isinstance(own.value, str) or own.value == policy.pod_restart_policy:
        return
    own.add_warning(
        f"{own.value} has no effect: the pods get {policy.pod_restart_policy}",
        f"write it as {found.path}.restartPolicy",
    )
