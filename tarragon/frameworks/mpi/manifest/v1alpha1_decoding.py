"""Decodes an MPIJob of v1alpha1: one template for launcher and workers, and a number of GPUs instead of workers.

Field names are compared without case, as in Go: the first examples spell `GPUs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tarragon.base.quantity import parse_milli
from tarragon.frameworks.kubeflow.decoding import Generation, decode_job, manifest_decoder
from tarragon.frameworks.kubeflow.elastic import within_bounds
from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, RUN_POLICY, WORKER, PolicyField
from tarragon.frameworks.mpi.fields import (
    IDLE_COMMAND,
    KIND,
    LAUNCHER,
    ROLES,
    SHAPE,
    V1ALPHA1,
    SpecField,
    V1Alpha1Field,
)
from tarragon.frameworks.mpi.manifest.decoding import elastic_bounds, with_backoff_limit
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine, with_restart_policies
from tarragon.frameworks.mpi.options import LauncherCreation, MpiOptions, Transport
from tarragon.frameworks.plugin import Manifest
from tarragon.job.model import CleanPodPolicy, ReplicaSpec, RestartPolicy, TrainingJob
from tarragon.job.replica_ranges import MAX_REPLICAS
from tarragon.kube.field_reader import CollectedProblems, FieldReader
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import validated

GENERATION = Generation(name=V1ALPHA1, api_version=V1ALPHA1, clean_pods=CleanPodPolicy.ALL)
GPU = "nvidia.com/gpu"
UNITS_PER_NODE = 1
"""The processing units of a worker by default, where the operator has no option for it."""
RESOURCES = (GPU, "cpu")
"""The types of processing units. Any other type meant GPUs."""
CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
"""The label and taint of launcherOnMaster, and their name since Kubernetes 1.20."""

_GPU_COUNTS = (V1Alpha1Field.GPUS, V1Alpha1Field.GPUS_PER_NODE, V1Alpha1Field.UNITS, V1Alpha1Field.UNITS_PER_NODE)
_POLICIES = FLAT_POLICIES | {RUN_POLICY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """How the requested processing units are spread."""

    workers: int = 0
    units: int | None = None
    """The limit of each worker; None leaves the template as it is."""
    slots: int = 1


def any_case(spec: FieldReader, name: str) -> FieldReader:
    """The field in the user's capitals."""
    if isinstance(spec.value, Mapping):
        for written in spec.value:
            if isinstance(written, str) and written.lower() == name.lower() and spec.value[written] is not None:
                return spec.field(written)
    return spec.field(name)


def _decode_spec(root: FieldReader, spec: FieldReader) -> TrainingJob:
    job = _job(root, spec)
    known = {name.lower() for name in V1Alpha1Field} | {name.lower() for name in _POLICIES}
    extra = {name for name in (spec.value if isinstance(spec.value, dict) else ()) if str(name).lower() in known}
    spec.note_unknown_fields({*V1Alpha1Field, *_POLICIES, SpecField.REPLICAS, SpecField.ELASTIC_POLICY, *extra})
    spec.field(RUN_POLICY).note_unknown_fields(frozenset(PolicyField))
    _note_replica_specs(spec.field(SpecField.REPLICAS))
    return job


def _note_replica_specs(found: FieldReader) -> None:
    """Note all fields of the replica specs but the one that `kubectl scale` writes beside the template."""
    for name, group in found.fields() if isinstance(found.value, Mapping) else ():
        if name != WORKER:
            group.add_unknown_field(
                f"spec.{V1Alpha1Field.TEMPLATE} is the template of all replicas: remove one of the two"
            )
        else:
            group.note_unknown_fields(("replicas",))


decode = manifest_decoder(_decode_spec, needs=f"{KIND}s of v1alpha1 need spec.{V1Alpha1Field.TEMPLATE}")


def _job(root: FieldReader, spec: FieldReader) -> TrainingJob:
    template = any_case(spec, V1Alpha1Field.TEMPLATE)
    if template.is_missing and not spec.is_missing:
        template.add_problem("is missing", "add a pod template")
    valid: JsonObject = validated(template) or {}
    resource = _resource(any_case(spec, V1Alpha1Field.RESOURCE))
    shares = _allocation(spec, valid, resource)
    scaled = spec.field(SpecField.REPLICAS).field(WORKER).field("replicas").integer(0, MAX_REPLICAS)
    slots = any_case(spec, V1Alpha1Field.SLOTS).integer(1)
    path = template.path.rpartition(".")[0]
    launcher = ReplicaSpec(
        type=LAUNCHER,
        role=ROLES[LAUNCHER],
        replicas=1,
        restart_policy=RestartPolicy.ON_FAILURE,
        template=_launcher_template(valid, on_master=any_case(spec, V1Alpha1Field.ON_MASTER)),
        field_path=path,
    )
    workers = ReplicaSpec(
        type=WORKER,
        role=ROLES[WORKER],
        replicas=shares.workers if scaled is None else scaled,
        restart_policy=RestartPolicy.ALWAYS,
        template=_worker_template(valid, resource, shares.units),
        field_path=path,
    )
    policies = replace(spec, value={name: each.value for name, each in spec.fields() if name in _POLICIES})
    quiet = replace(policies, value={**policies.value, SHAPE.replica_specs: {}})
    job = decode_job(root, quiet, SHAPE, GENERATION)
    engine = LauncherEngine.BATCH_JOB
    elastic = elastic_bounds(spec).decode((workers,), least_default=1)
    groups = (launcher, within_bounds(workers, elastic, spec.notes))
    return replace(
        job,
        replica_specs=with_restart_policies(groups, engine, LauncherCreation.WAIT_FOR_WORKERS_READY, elastic),
        run_policy=with_backoff_limit(job.run_policy, engine),
        elastic_policy=elastic,
        options=MpiOptions(transport=Transport.EXEC, slots=shares.slots if slots is None else slots),
    )


def configured_fields(spec: JsonObject, values: JsonObject) -> dict[str, Json]:
    """The fields that the flags of the v1alpha1 operator set: how many units a node has, and their type."""
    found = FieldReader(spec, "spec", CollectedProblems())
    totals = {
        V1Alpha1Field.GPUS_PER_NODE.value: V1Alpha1Field.GPUS,
        V1Alpha1Field.UNITS_PER_NODE.value: V1Alpha1Field.UNITS,
    }
    return {
        name: value
        for name, value in values.items()
        if any_case(found, name).is_missing and (name not in totals or not any_case(found, totals[name]).is_missing)
    }


def _resource(found: FieldReader) -> str:
    written = found.string(GPU)
    if written not in RESOURCES:
        found.add_warning(f"{written} means {GPU}: there are only {' and '.join(RESOURCES)}", f"write {GPU}")
        return GPU
    return written


def _allocation(spec: FieldReader, template: JsonObject, resource: str) -> Allocation:
    """Spread the units over workers of equal size (3.2 of the reference): less than a node's fill one worker."""
    gpus, units, workers = (
        any_case(spec, name) for name in (V1Alpha1Field.GPUS, V1Alpha1Field.UNITS, V1Alpha1Field.WORKERS)
    )
    given = [found for found in (gpus, units, workers) if not found.is_missing]
    if len(given) > 1:
        given[1].add_problem(f"excludes {given[0].path}", "remove one of the two")
    if not given:
        return Allocation()
    if given[0].name == workers.name:
        each = _limit(template, resource)
        return Allocation(workers=workers.integer(0, MAX_REPLICAS) or 0, units=each or None, slots=each or 1)
    total_field = given[0]
    node_field = any_case(
        spec, V1Alpha1Field.GPUS_PER_NODE if total_field.name == gpus.name else V1Alpha1Field.UNITS_PER_NODE
    )
    total, per_node = total_field.integer(1), node_field.integer(1) or UNITS_PER_NODE
    if total is None:
        return Allocation()
    if total < per_node:
        return Allocation(workers=1, units=total, slots=total)
    if total % per_node:
        lower, upper = total - total % per_node, total - total % per_node + per_node
        total_field.add_problem(
            f"{total} is not a multiple of {node_field.path}, which is {per_node}", f"write {lower} or {upper}"
        )
        return Allocation()
    return Allocation(workers=total // per_node, units=per_node, slots=per_node)


def _limit(template: JsonObject, resource: str) -> int:
    """The limit of the first container, in whole units; 0 without one."""
    containers = template.get("spec", {}).get("containers", [])
    limits = containers[0].get("resources", {}).get("limits", {}) if containers else {}
    return parse_milli(limits[resource]) // 1000 if resource in limits else 0


def _launcher_template(template: JsonObject, on_master: FieldReader) -> JsonObject:
    """The template without resources, so that the launcher runs anywhere, or on the control plane if it is to."""
    if not template:
        return template
    spec = template.get("spec", {})
    containers = [_without(container, "resources") for container in spec.get("containers", [])]
    spec = {**_without(spec, "restartPolicy"), "containers": containers}
    return {**template, "spec": _on_control_plane(spec) if on_master.boolean() else spec}


def _worker_template(template: JsonObject, resource: str, units: int | None) -> JsonObject:
    """The template with `sleep` as its command, and with its share of the units as a limit."""
    spec = template.get("spec", {})
    containers = spec.get("containers", [])
    if not containers:
        return template
    first = {**_without(containers[0], "args"), "command": list(IDLE_COMMAND)}
    if units is not None:
        resources = first.get("resources", {})
        first["resources"] = {**resources, "limits": {**resources.get("limits", {}), resource: units}}
    return {**template, "spec": {**_without(spec, "restartPolicy"), "containers": [first, *containers[1:]]}}


def _on_control_plane(spec: JsonObject) -> JsonObject:
    tolerations = [{"key": label, "operator": "Exists", "effect": "NoSchedule"} for label in CONTROL_PLANE_LABELS]
    affinity = spec.get("affinity", {})
    node = affinity.get("nodeAffinity", {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms: list[JsonObject] = required.get("nodeSelectorTerms") or [{}]
    on_it = [
        {**term, "matchExpressions": [*term.get("matchExpressions", []), {"key": label, "operator": "Exists"}]}
        for term in terms
        for label in CONTROL_PLANE_LABELS
    ]
    node_affinity = {**node, "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": on_it}}
    return {
        **spec,
        "tolerations": [*spec.get("tolerations", []), *tolerations],
        "affinity": {**affinity, "nodeAffinity": node_affinity},
    }


def _without(found: JsonObject, name: str) -> dict[str, Json]:
    return {key: value for key, value in found.items() if key != name}


def without_gpu_count(manifest: Manifest) -> Manifest:
    """The job with its number of workers and slots instead of a number of GPUs."""
    found = FieldReader(manifest["spec"], "spec", CollectedProblems())
    counts = {any_case(found, name).name for name in _GPU_COUNTS if not any_case(found, name).is_missing}
    if not counts or any_case(found, V1Alpha1Field.RESOURCE).value == "cpu":
        return manifest
    template: JsonObject = validated(any_case(found, V1Alpha1Field.TEMPLATE)) or {}
    shares = _allocation(found, template, GPU)
    slots = any_case(found, V1Alpha1Field.SLOTS).integer(1)
    kept = {name: value for name, value in manifest["spec"].items() if name not in counts}
    size = {
        V1Alpha1Field.WORKERS.value: shares.workers,
        V1Alpha1Field.SLOTS.value: shares.slots if slots is None else slots,
    }
    return {**manifest, "spec": {**kept, **size}}


def without_scaled_size(manifest: Manifest) -> Manifest:
    """The job without spec.mpiReplicaSpecs beside a template.

    `kubectl scale` writes it there, and it would take precedence over the number of GPUs.
    """
    spec = manifest["spec"]
    if not any(str(name).lower() == V1Alpha1Field.TEMPLATE for name in spec) or SpecField.REPLICAS not in spec:
        return manifest
    return {**manifest, "spec": {name: value for name, value in spec.items() if name != SpecField.REPLICAS}}
