"""Writes the spec of a job in another generation: all fields that it has, and defaults where the two differ."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, WORKER, PolicyField
from tarragon.frameworks.tensorflow.conversion.generations import FIELDS, SpecLayout, TFJobGeneration
from tarragon.frameworks.tensorflow.conversion.groups import convert_replicas
from tarragon.frameworks.tensorflow.fields import SpecField
from tarragon.job.model import TrainingJob
from tarragon.job.tensorboard import IMAGE_ANNOTATION, LOG_DIR_ANNOTATION
from tarragon.kube.meta import Json, JsonObject

SCHEDULER = "schedulerName"
TERMINATION = "terminationPolicy"
TENSORBOARD = "tensorboard"

_KNOWN = FIELDS | {*PolicyField} | {SpecField.REPLICAS, SpecField.RUN_POLICY}
_RECOGNISED_BY_POLICIES = "kubeflow.org/v1-flat"
"""A generation that is only recognised by its flat policies, so that at least one must be written."""


def write_spec(
    found: NormalizedSpec, job: TrainingJob, source: TFJobGeneration, target: TFJobGeneration
) -> NormalizedSpec:
    """The keyed form of the new manifest. `job` is the old manifest as decoded by the source generation."""
    replicas = convert_replicas(found, job, source, target)
    scheduler = found["rest"].get(SCHEDULER)
    if scheduler and SCHEDULER in source.fields - target.fields:
        replicas = {role: _scheduled(fields, scheduler) for role, fields in replicas.items()}
    order = {"order": found["order"]} if source.is_list and target.is_list else {}
    policies = _policies(found, job, target)
    nested = {name: value for name, value in policies.items() if name not in FLAT_POLICIES}
    beside = target.shape is SpecLayout.FLAT and bool(nested)
    policy = {name: value for name, value in policies.items() if not (beside and name in nested)}
    rest = {
        **_rest(found, source, target),
        **_implied(job, source, target),
        **({SpecField.RUN_POLICY.value: nested} if beside else {}),
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


def _policies(found: NormalizedSpec, job: TrainingJob, target: TFJobGeneration) -> dict[str, Json]:
    """The policies that have an effect, and unknown ones. Those in runPolicy override those beside it."""
    flat = {name: value for name, value in found["rest"].items() if name in FLAT_POLICIES}
    counting = {**flat, **found["policy"], **found["rest"].get(SpecField.RUN_POLICY, {})}
    has_room = target.policies > FLAT_POLICIES
    known = {name: value for name, value in counting.items() if name in target.policies or (has_room and _is_new(name))}
    is_written = PolicyField.CLEAN_POD_POLICY in known
    must_be_written = job.run_policy.clean_pod_policy is not target.clean_pods or target.name == _RECOGNISED_BY_POLICIES
    if is_written or not must_be_written:
        return known
    return {PolicyField.CLEAN_POD_POLICY.value: job.run_policy.clean_pod_policy.value, **known}


def _is_new(name: str) -> bool:
    return name not in frozenset(PolicyField)


def _rest(found: NormalizedSpec, source: TFJobGeneration, target: TFJobGeneration) -> dict[str, Json]:
    """The fields that both generations have, and unknown fields."""
    both = source.effective_fields & target.fields
    return {name: value for name, value in found["rest"].items() if name in both or name not in _KNOWN}


def _implied(job: TrainingJob, source: TFJobGeneration, target: TFJobGeneration) -> Mapping[str, Json]:
    """Fields that must be added so that the job keeps its meaning."""
    implied: dict[str, Json] = {}
    if SpecField.MAX_INSTANCES in target.fields and job.elastic_policy is None:
        workers = job.requested_size().get(WORKER, 0)
        implied |= {SpecField.MAX_INSTANCES.value: workers, SpecField.MIN_INSTANCES.value: workers}
    chief = job.chief
    if TERMINATION in target.fields - source.fields and chief is not None and chief.type == WORKER:
        implied[TERMINATION] = {"chief": {"replicaName": chief.type.upper(), "replicaIndex": chief.index}}
    return implied


def _noted(found: NormalizedSpec, job: TrainingJob, source: TFJobGeneration, target: TFJobGeneration) -> dict[str, str]:
    """Annotations that replace fields which the target does not have."""
    is_field = TENSORBOARD in source.fields - target.fields and TENSORBOARD in found["rest"]
    board = job.tensorboard
    return {LOG_DIR_ANNOTATION: board.log_dir, IMAGE_ANNOTATION: board.image} if is_field and board is not None else {}


def _scheduled(fields: JsonObject, name: str) -> dict[str, Json]:
    template = fields.get("template", {})
    return {**fields, "template": {**template, "spec": {**template.get("spec", {}), SCHEDULER: name}}}
