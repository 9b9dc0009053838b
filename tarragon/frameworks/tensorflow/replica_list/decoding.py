"""Decodes a TFJob with a list of replicas, as before v1alpha2: kubeflow.org/v1alpha1 and mlkube.io/v1beta1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tarragon.frameworks.kubeflow.decoding import manifest_decoder
from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, WORKER, PolicyField
from tarragon.frameworks.kubeflow.metadata import decode_name, decode_time
from tarragon.frameworks.kubeflow.run_policy import decode_run_policy
from tarragon.frameworks.plugin import DecodedManifest, Manifest
from tarragon.frameworks.tensorflow.fields import KIND, LIST_SPELLINGS, SpecField
from tarragon.frameworks.tensorflow.replica_list import default_server, tensorboard_field
from tarragon.frameworks.tensorflow.replica_list.replicas import decode_replica_specs, replica_list, with_defaults
from tarragon.frameworks.tensorflow.replica_list.runtime_id import runtime_id
from tarragon.frameworks.tensorflow.replica_types import MASTER
from tarragon.job.model import (
    RUNTIME_ID_ANNOTATION,
    CleanPodPolicy,
    Replica,
    ReplicaSpec,
    RestartPolicy,
    TrainingJob,
)
from tarragon.job.replica_ranges import MAX_REPLICAS
from tarragon.kube.field_reader import INT32, CollectedProblems, FieldReader, suggestion
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.name_validation import dns_label_error
from tarragon.kube.pod_validation import validated

RUNTIME_ID = "RuntimeId"
IMAGE = "tfImage"
TERMINATION = "terminationPolicy"
SCHEDULER = "schedulerName"

LATER_FIELDS = frozenset(
    {SpecField.SUCCESS_POLICY, SpecField.DYNAMIC_WORKER, SpecField.MAX_INSTANCES, SpecField.MIN_INSTANCES}
)
"""Fields that have no effect in a job with a list of replicas."""

_DEFAULT_CHIEF = Replica(MASTER, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGeneration:
    """The differences between the two generations with a list of replicas."""

    name: str
    api_version: str
    kind: str = KIND
    clean_pods: CleanPodPolicy = CleanPodPolicy.RUNNING
    """The default of cleanPodPolicy."""
    fields: frozenset[str] = frozenset()
    """The fields of spec in addition to those that both generations have."""


def decoder(generation: ListGeneration) -> Callable[[Manifest], DecodedManifest]:
    """The `decode` of a dialect.

    Policies of later generations (suspension, limits, clean-up) may be in spec.runPolicy here too. When a v1alpha1 job
    ends, running pods are stopped, as in the original operator; finished pods are kept, so that `kubectl logs` works.
    """

    def decode_spec(root: FieldReader, spec: FieldReader) -> TrainingJob:
        job = _job(root, spec, generation)
        _fields(spec, generation)
        return job

    return manifest_decoder(decode_spec, needs=f"{generation.kind}s need spec.{SpecField.LIST}")


def _job(root: FieldReader, spec: FieldReader, generation: ListGeneration) -> TrainingJob:
    metadata = root.field("metadata")
    validated(metadata, "ObjectMeta")
    quiet = FieldReader(metadata.value, metadata.path, CollectedProblems())
    uid = quiet.field("uid").string()
    annotations = quiet.field("annotations").string_map()
    own_id = _kept_id(spec, annotations, uid) or _runtime_id(spec) or runtime_id(uid)
    image = spec.field(IMAGE).string() or default_server.IMAGE
    groups = decode_replica_specs(replica_list(spec), image, default_server.config_map_name(own_id, uid))
    _warn_about_map(spec, groups)
    groups = [_scheduled(_scaled(group, spec), spec.field(SCHEDULER)) for group in groups]
    return TrainingJob(
        kind=generation.kind,
        api_version=generation.api_version,
        dialect=generation.name,
        key=Key(quiet.field("namespace").string(), decode_name(quiet, metadata)),
        uid=uid,
        creation_time=decode_time(quiet.field("creationTimestamp")),
        replica_specs=tuple(groups),
        run_policy=decode_run_policy(spec, generation.clean_pods),
        runtime_id=own_id,
        chief_restart_policy=RestartPolicy.EXIT_CODE,
        named_chief=_decider(spec, groups, generation),
        tensorboard=tensorboard_field.tensorboard(spec.field(tensorboard_field.FIELD), image),
        labels=quiet.field("labels").string_map(),
        annotations=annotations,
    )


def _kept_id(spec: FieldReader, annotations: Mapping[str, str], uid: str) -> str:
    """The runtime id with which this job was started. A copy of its manifest has another uid and gets its own id."""
    owner_uid, _, kept = annotations.get(RUNTIME_ID_ANNOTATION, "").partition(":")
    if not uid or owner_uid != uid or not kept or dns_label_error(kept, may_begin_with_digit=True) is not None:
        return ""
    written = field_ignoring_case(spec, RUNTIME_ID)
    if written.string() not in {"", kept}:
        message = f"has no effect any more: the job was started with {kept} and keeps its object names"
        written.add_warning(message, f"write {kept}, or submit the job again")
    return kept


def _runtime_id(spec: FieldReader) -> str:
    """The runtime id in the spec, whose field name is compared without case, as in Go; empty if there is none."""
    written = field_ignoring_case(spec, RUNTIME_ID)
    found = written.string()
    fault = dns_label_error(found, may_begin_with_digit=True) if found else None
    if fault is not None:
        written.add_problem(fault, "remove it, and the job gets one")
        return ""
    return found


def field_ignoring_case(found: FieldReader, name: str) -> FieldReader:
    """The field of that name, compared without case; an exact match takes precedence."""
    if found.field(name).is_missing and isinstance(found.value, dict):
        others = (each for each in found.value if isinstance(each, str) and each.lower() == name.lower())
        return next((field for each in others if not (field := found.field(each)).is_missing), found.field(name))
    return found.field(name)


def _scaled(group: ReplicaSpec, spec: FieldReader) -> ReplicaSpec:
    """Apply the number of workers that `kubectl scale` has set in the map of replicas of later generations."""
    if group.type != WORKER:
        return group
    written = spec.field(SpecField.REPLICAS).field("Worker").field("replicas")
    wish = written.integer(0, MAX_REPLICAS)
    if wish is None:
        return group
    if wish != group.replicas:
        written.add_warning(
            f"is {wish}, set by `kubectl scale`, and overrides {group.field_path}.replicas, which is {group.replicas}",
            f"scale again, or remove spec.{SpecField.REPLICAS} to go back to the {group.replicas} of the list",
        )
    return replace(group, replicas=wish)


def _warn_about_map(spec: FieldReader, groups: list[ReplicaSpec]) -> None:
    has_workers = any(group.type == WORKER for group in groups)
    for name, found in spec.field(SpecField.REPLICAS).fields():
        if name != "Worker":
            found.add_warning(f"has no effect with spec.{SpecField.LIST}", "write it there")
            continue
        for part, value in found.fields():
            if part != "replicas":
                value.add_warning(f"has no effect with spec.{SpecField.LIST}", "write it there")
            elif not has_workers:
                value.add_warning(f"has no effect: there is no WORKER in spec.{SpecField.LIST}", "add one there")


def _scheduled(group: ReplicaSpec, found: FieldReader) -> ReplicaSpec:
    """Apply spec.schedulerName, which overrides the templates of all pods."""
    scheduler = found.string()
    if not scheduler:
        return group
    pod = group.template.get("spec", {})
    return replace(group, template={**group.template, "spec": {**pod, SCHEDULER: scheduler}})


def _decider(spec: FieldReader, groups: list[ReplicaSpec], generation: ListGeneration) -> Replica | None:
    """The replica that terminationPolicy names; None for the master, which is the default."""
    named = spec.field(TERMINATION).field("chief")
    spec.field(TERMINATION).is_map()
    named.is_map()
    sizes = {group.type: group.replicas for group in groups}
    word = named.field("replicaName").string() or MASTER.upper()
    index = named.field("replicaIndex").integer(0, INT32) or 0
    kind = next((kind for kind in sizes if kind.upper() == word), None)
    if kind is None:
        other = f", or name another replica in spec.{TERMINATION}.chief" if TERMINATION in generation.fields else ""
        _note_missing_chief(spec, named, [kind.upper() for kind in sizes], remedy=f"add one{other}")
    elif index >= sizes[kind]:
        _note_bad_index(named.field("replicaIndex"), f"{word} {index}", sizes[kind])
    elif Replica(kind, index) != _DEFAULT_CHIEF:
        return Replica(kind, index)
    else:
        return None
    # Assume the default chief from here on, so that only one problem is reported.
    return _DEFAULT_CHIEF


def _note_missing_chief(spec: FieldReader, named: FieldReader, types: list[str], *, remedy: str) -> None:
    if not named.is_missing:
        written = named.field("replicaName")
        advice = suggestion(written.string(), types) or "name one that is in the list"
        written.add_problem(f"there is no {written.string() or 'MASTER'} in spec.{SpecField.LIST}", advice)
    elif isinstance(replica_list(spec).value, list) and len(replica_list(spec).value) == len(types):
        # If the lengths differ, a problem was already noted for an invalid item.
        replica_list(spec).add_problem("has no MASTER, which decides when the job is done", remedy)


def _note_bad_index(written: FieldReader, replica: str, count: int) -> None:
    valid = f"write 0 to {count - 1}" if count > 1 else "write 0"
    written.add_problem(f"there is no {replica}", valid if count else "the job has none")


def _fields(spec: FieldReader, generation: ListGeneration) -> None:
    own = {*LIST_SPELLINGS, IMAGE, tensorboard_field.FIELD, SpecField.RUN_POLICY, *FLAT_POLICIES, *generation.fields}
    misplaced = frozenset(PolicyField) - FLAT_POLICIES
    for name, value in spec.fields():
        if name in LATER_FIELDS:
            value.add_warning(
                f"has no effect with spec.{SpecField.LIST}: it belongs to a later generation", "remove it"
            )
        elif name in misplaced:
            value.add_unknown_field(f"move it to spec.{SpecField.RUN_POLICY}.{name}")
    ids = {name for name, _ in spec.fields() if name.lower() == RUNTIME_ID.lower()}
    spec.note_unknown_fields({*own, *LATER_FIELDS, *misplaced, SpecField.REPLICAS, RUNTIME_ID, *ids})
    spec.field(SpecField.RUN_POLICY).note_unknown_fields(frozenset(PolicyField))
    if TERMINATION in generation.fields:
        spec.field(TERMINATION).note_unknown_fields({"chief"})
        spec.field(TERMINATION).field("chief").note_unknown_fields({"replicaName", "replicaIndex"})


def default_fields(job: TrainingJob, spec: JsonObject) -> dict[str, Json]:
    """The fields that the original operator filled in, as its users saw them with `kubectl get -o yaml`."""
    image = spec.get(IMAGE) or default_server.IMAGE
    groups = {group.type.upper(): group for group in job.replica_specs}
    lists: dict[str, Json] = {
        name: with_defaults(spec[name], groups, str(image)) for name in LIST_SPELLINGS if spec.get(name) is not None
    }
    return {RUNTIME_ID: spec.get(RUNTIME_ID) or job.runtime_id, IMAGE: image, **lists}


def persistent_annotations(job: TrainingJob) -> dict[str, str]:
    return {RUNTIME_ID_ANNOTATION: f"{job.uid}:{job.runtime_id}"}
