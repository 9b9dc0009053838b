"""Writes the spec of a job in another generation: all fields that it has, and defaults where the two differ."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.tensorflow.conversion.generations import FIELDS, Generation, Shape
from tarragon.frameworks.tensorflow.conversion.groups import groups
from tarragon.frameworks.tensorflow.conversion.keyed import Keyed
from tarragon.frameworks.tensorflow.fields import FLAT_POLICIES, Policy, Spec
from tarragon.job.model import ReplicaType, TrainingJob
from tarragon.job.tensorboard import FOLDER, IMAGE
from tarragon.kube.meta import Json, JsonObject

SCHEDULER = "schedulerName"
TERMINATION = "terminationPolicy"
TENSORBOARD = "tensorboard"

_KNOWN = FIELDS | {*Policy} | {Spec.REPLICAS, Spec.RUN_POLICY}
_RECOGNISED_BY_POLICIES = "kubeflow.org/v1-flat"
"""A generation that is only recognised by its flat policies, so that at least one must be written."""


def written(found: Keyed, job: TrainingJob, source: Generation, target: Generation) -> Keyed:
    """The keyed form of the new manifest. `job` is the old manifest as decoded by the source generation."""
    replicas = groups(found, job, source, target)
    scheduler = found["rest"].get(SCHEDULER)
    if scheduler and SCHEDULER in source.fields - target.fields:
        replicas = {role: _scheduled(fields, scheduler) for role, fields in replicas.items()}
    order = {"order": found["order"]} if source.is_list and target.is_list else {}
    policies = _policies(found, job, target)
    nested = {name: value for name, value in policies.items() if name not in FLAT_POLICIES}
    beside = target.shape is Shape.FLAT and bool(nested)
    policy = {name: value for name, value in policies.items() if not (beside and name in nested)}
    rest = {
        **_rest(found, source, target),
        **_implied(job, source, target),
        **({Spec.RUN_POLICY.value: nested} if beside else {}),
    }
    return {
        "generation": target.name,
        "groups": replicas,
        **order,
        "policy": policy,
        "rest": rest,
        "words": {},
        "notes": {**found["notes"], **_noted(found, job, source, target)},
    }


def _policies(found: Keyed, job: TrainingJob, target: Generation) -> dict[str, Json]:
    """The policies that have an effect, and unknown ones. Those in runPolicy override those beside it."""
    flat = {name: value for name, value in found["rest"].items() if name in FLAT_POLICIES}
    counting = {**flat, **found["policy"], **found["rest"].get(Spec.RUN_POLICY, {})}
    has_room = target.policies > FLAT_POLICIES
    known = {name: value for name, value in counting.items() if name in target.policies or (has_room and _is_new(name))}
    is_written = Policy.CLEAN_POD_POLICY in known
    must_be_written = job.run_policy.clean_pods is not target.clean_pods or target.name == _RECOGNISED_BY_POLICIES
    if is_written or not must_be_written:
        return known
    return {Policy.CLEAN_POD_POLICY.value: job.run_policy.clean_pods.value, **known}


def _is_new(name: str) -> bool:
    return name not in frozenset(Policy)


def _rest(found: Keyed, source: Generation, target: Generation) -> dict[str, Json]:
    """The fields that both generations have, and unknown fields."""
    both = source.counting & target.fields
    return {name: value for name, value in found["rest"].items() if name in both or name not in _KNOWN}


def _implied(job: TrainingJob, source: Generation, target: Generation) -> Mapping[str, Json]:
    """Fields that must be added so that the job keeps its meaning."""
    implied: dict[str, Json] = {}
    if Spec.MAX_INSTANCES in target.fields and job.elastic is None:
        workers = job.wished().get(ReplicaType.WORKER, 0)
        implied |= {Spec.MAX_INSTANCES.value: workers, Spec.MIN_INSTANCES.value: workers}
    chief = job.chief
    if TERMINATION in target.fields - source.fields and chief is not None and chief.type is ReplicaType.WORKER:
        implied[TERMINATION] = {"chief": {"replicaName": chief.type.value.upper(), "replicaIndex": chief.index}}
    return implied


def _noted(found: Keyed, job: TrainingJob, source: Generation, target: Generation) -> dict[str, str]:
    """Annotations that replace fields which the target does not have."""
    is_field = TENSORBOARD in source.fields - target.fields and TENSORBOARD in found["rest"]
    board = job.tensorboard
    return {FOLDER: board.log_dir, IMAGE: board.image} if is_field and board is not None else {}


def _scheduled(fields: JsonObject, name: str) -> dict[str, Json]:
    template = fields.get("template", {})
    return {**fields, "template": {**template, "spec": {**template.get("spec", {}), SCHEDULER: name}}}
