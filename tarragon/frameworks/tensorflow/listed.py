"""Decodes a TFJob with a list of replicas, as before v1alpha2: kubeflow.org/v1alpha1 and mlkube.io/v1beta1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tarragon.frameworks.plugin import Manifest, Reading
from tarragon.frameworks.tensorflow import board, default_server
from tarragon.frameworks.tensorflow.fields import FLAT_POLICIES, KIND, LIST_SPELLINGS, Policy, Spec
from tarragon.frameworks.tensorflow.listed_groups import filled_in, read_groups, the_list
from tarragon.frameworks.tensorflow.runtime import runtime_id
from tarragon.frameworks.tensorflow.shape import TOP, name_of, run_policy, time_of
from tarragon.job.indexes import MOST
from tarragon.job.model import (
    RUNTIME_ID_ANNOTATION,
    CleanPodPolicy,
    Replica,
    ReplicaGroup,
    ReplicaType,
    RestartPolicy,
    TrainingJob,
)
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.names import fault_of_label_name
from tarragon.kube.podtemplate import checked
from tarragon.kube.reader import INT32, Notes, Reader, suggestion

RUNTIME_ID = "RuntimeId"
IMAGE = "tfImage"
TERMINATION = "terminationPolicy"
SCHEDULER = "schedulerName"

LATER = frozenset({Spec.SUCCESS_POLICY, Spec.DYNAMIC_WORKER, Spec.MAX_INSTANCES, Spec.MIN_INSTANCES})
"""Fields that have no effect in a job with a list of replicas."""

_DEFAULT_CHIEF = Replica(ReplicaType.MASTER, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The differences between the two generations with a list of replicas."""

    name: str
    api_version: str
    kind: str = KIND
    clean_pods: CleanPodPolicy = CleanPodPolicy.RUNNING
    """The default of cleanPodPolicy."""
    fields: frozenset[str] = frozenset()
    """The fields of spec in addition to those that both generations have."""


def reader(generation: Generation) -> Callable[[Manifest], Reading]:
    """The `read` of a dialect."""
    return lambda manifest: read(manifest, generation)


def read(manifest: Manifest, generation: Generation) -> Reading:
    """Decode a manifest. Never raises: every fault becomes a Problem.

    Policies of later generations (suspension, limits, clean-up) may be in spec.runPolicy here too. When a v1alpha1 job
    ends, running pods are stopped, as in the original operator; finished pods are kept, so that `kubectl logs` works.
    """
    notes = Notes()
    root = Reader(manifest, "", notes)
    root.only(TOP)
    spec = root.field("spec")
    if spec.is_missing:
        spec.problem("is missing", f"a {generation.kind} needs spec.{Spec.LIST}")
    job = _job(root, spec, generation)
    _fields(spec, generation)
    return Reading(job=job, problems=notes.problems, unknown=notes.unknown, warnings=notes.warnings)


def _job(root: Reader, spec: Reader, generation: Generation) -> TrainingJob:
    metadata = root.field("metadata")
    checked(metadata, "ObjectMeta")
    quiet = Reader(metadata.value, metadata.path, Notes())
    uid = quiet.field("uid").text()
    annotations = quiet.field("annotations").texts()
    own_id = _kept_id(spec, annotations, uid) or _runtime_id(spec) or runtime_id(uid)
    image = spec.field(IMAGE).text() or default_server.IMAGE
    groups = read_groups(the_list(spec), image, default_server.config_map_name(own_id, uid))
    _warn_about_map(spec, groups)
    groups = [_scheduled(_scaled(group, spec), spec.field(SCHEDULER)) for group in groups]
    return TrainingJob(
        kind=generation.kind,
        api_version=generation.api_version,
        generation=generation.name,
        key=Key(quiet.field("namespace").text(), name_of(quiet, metadata)),
        uid=uid,
        created=time_of(quiet.field("creationTimestamp")),
        groups=tuple(groups),
        run_policy=run_policy(spec, generation.clean_pods),
        runtime_id=own_id,
        chief_policy=RestartPolicy.EXIT_CODE,
        decider=_decider(spec, groups, generation),
        tensorboard=board.tensorboard(spec.field(board.FIELD), image),
        labels=quiet.field("labels").texts(),
        annotations=annotations,
    )


def _kept_id(spec: Reader, annotations: Mapping[str, str], uid: str) -> str:
    """The runtime id with which this job was started. A copy of its manifest has another uid and gets its own id."""
    owner_uid, _, kept = annotations.get(RUNTIME_ID_ANNOTATION, "").partition(":")
    if not uid or owner_uid != uid or not kept or fault_of_label_name(kept, may_begin_with_digit=True) is not None:
        return ""
    written = any_capitals(spec, RUNTIME_ID)
    if written.text() not in {"", kept}:
        message = f"has no effect any more: the job was started with {kept} and keeps its object names"
        written.warn(message, f"write {kept}, or submit the job again")
    return kept


def _runtime_id(spec: Reader) -> str:
    """The runtime id in the spec, whose field name is compared without case, as in Go; empty if there is none."""
    written = any_capitals(spec, RUNTIME_ID)
    found = written.text()
    fault = fault_of_label_name(found, may_begin_with_digit=True) if found else None
    if fault is not None:
        written.problem(fault, "remove it, and the job gets one")
        return ""
    return found


def any_capitals(found: Reader, name: str) -> Reader:
    """The field of that name, compared without case; an exact match takes precedence."""
    if found.field(name).is_missing and isinstance(found.value, dict):
        others = (each for each in found.value if isinstance(each, str) and each.lower() == name.lower())
        return next((field for each in others if not (field := found.field(each)).is_missing), found.field(name))
    return found.field(name)


def _scaled(group: ReplicaGroup, spec: Reader) -> ReplicaGroup:
    """Apply the number of workers that `kubectl scale` has set in the map of replicas of later generations."""
    if group.type is not ReplicaType.WORKER:
        return group
    written = spec.field(Spec.REPLICAS).field("Worker").field("replicas")
    wish = written.whole(0, MOST)
    if wish is None:
        return group
    if wish != group.wish:
        written.warn(
            f"is {wish}, set by `kubectl scale`, and overrides {group.path}.replicas, which is {group.wish}",
            f"scale again, or remove spec.{Spec.REPLICAS} to go back to the {group.wish} of the list",
        )
    return replace(group, wish=wish)


def _warn_about_map(spec: Reader, groups: list[ReplicaGroup]) -> None:
    has_workers = any(group.type is ReplicaType.WORKER for group in groups)
    for name, found in spec.field(Spec.REPLICAS).fields():
        if name != "Worker":
            found.warn(f"has no effect with spec.{Spec.LIST}", "write it there")
            continue
        for part, value in found.fields():
            if part != "replicas":
                value.warn(f"has no effect with spec.{Spec.LIST}", "write it there")
            elif not has_workers:
                value.warn(f"has no effect: there is no WORKER in spec.{Spec.LIST}", "add one there")


def _scheduled(group: ReplicaGroup, found: Reader) -> ReplicaGroup:
    """Apply spec.schedulerName, which overrides the templates of all pods."""
    scheduler = found.text()
    if not scheduler:
        return group
    pod = group.template.get("spec", {})
    return replace(group, template={**group.template, "spec": {**pod, SCHEDULER: scheduler}})


def _decider(spec: Reader, groups: list[ReplicaGroup], generation: Generation) -> Replica | None:
    """The replica that terminationPolicy names; None for the master, which is the default."""
    named = spec.field(TERMINATION).field("chief")
    spec.field(TERMINATION).is_map()
    named.is_map()
    sizes = {group.type: group.wish for group in groups}
    word = named.field("replicaName").text() or ReplicaType.MASTER.value.upper()
    index = named.field("replicaIndex").whole(0, INT32) or 0
    kind = next((kind for kind in sizes if kind.value.upper() == word), None)
    if kind is None:
        other = f", or name another replica in spec.{TERMINATION}.chief" if TERMINATION in generation.fields else ""
        _note_missing_chief(spec, named, [kind.value.upper() for kind in sizes], remedy=f"add one{other}")
    elif index >= sizes[kind]:
        _note_bad_index(named.field("replicaIndex"), f"{word} {index}", sizes[kind])
    elif Replica(kind, index) != _DEFAULT_CHIEF:
        return Replica(kind, index)
    else:
        return None
    # Assume the default chief from here on, so that only one problem is reported.
    return _DEFAULT_CHIEF


def _note_missing_chief(spec: Reader, named: Reader, types: list[str], *, remedy: str) -> None:
    if not named.is_missing:
        written = named.field("replicaName")
        advice = suggestion(written.text(), types) or "name one that is in the list"
        written.problem(f"there is no {written.text() or 'MASTER'} in spec.{Spec.LIST}", advice)
    elif isinstance(the_list(spec).value, list) and len(the_list(spec).value) == len(types):
        # If the lengths differ, a problem was already noted for an invalid item.
        the_list(spec).problem("has no MASTER, which decides when the job is done", remedy)


def _note_bad_index(written: Reader, replica: str, count: int) -> None:
    valid = f"write 0 to {count - 1}" if count > 1 else "write 0"
    written.problem(f"there is no {replica}", valid if count else "the job has none")


def _fields(spec: Reader, generation: Generation) -> None:
    own = {*LIST_SPELLINGS, IMAGE, board.FIELD, Spec.RUN_POLICY, *FLAT_POLICIES, *generation.fields}
    misplaced = frozenset(Policy) - FLAT_POLICIES
    for name, value in spec.fields():
        if name in LATER:
            value.warn(f"has no effect with spec.{Spec.LIST}: it belongs to a later generation", "remove it")
        elif name in misplaced:
            value.note_unknown(f"move it to spec.{Spec.RUN_POLICY}.{name}")
    ids = {name for name, _ in spec.fields() if name.lower() == RUNTIME_ID.lower()}
    spec.only({*own, *LATER, *misplaced, Spec.REPLICAS, RUNTIME_ID, *ids})
    spec.field(Spec.RUN_POLICY).only(frozenset(Policy))
    if TERMINATION in generation.fields:
        spec.field(TERMINATION).only({"chief"})
        spec.field(TERMINATION).field("chief").only({"replicaName", "replicaIndex"})


def written_back(job: TrainingJob, spec: JsonObject) -> dict[str, Json]:
    """The fields that the original operator filled in, as its users saw them with `kubectl get -o yaml`."""
    image = spec.get(IMAGE) or default_server.IMAGE
    groups = {group.type.value.upper(): group for group in job.groups}
    lists: dict[str, Json] = {
        name: filled_in(spec[name], groups, str(image)) for name in LIST_SPELLINGS if spec.get(name) is not None
    }
    return {RUNTIME_ID: spec.get(RUNTIME_ID) or job.runtime_id, IMAGE: image, **lists}


def lasting(job: TrainingJob) -> dict[str, str]:
    return {RUNTIME_ID_ANNOTATION: f"{job.uid}:{job.runtime_id}"}
