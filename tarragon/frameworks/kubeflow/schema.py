"""Pieces of the OpenAPI schemas of CustomResourceDefinitions: types, enums and minima, no defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from tarragon.frameworks.kubeflow.field_descriptions import DESCRIPTIONS, describe
from tarragon.frameworks.kubeflow.fields import RUN_POLICY, PolicyField
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.job.model import CleanPodPolicy, RestartPolicy
from tarragon.kube.meta import Json

Schema = dict[str, Json]

PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"

TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}


def open_object(fields: Schema) -> Schema:
    """An object that keeps unknown fields, so that the operator can report them."""
    return {"type": "object", PRESERVE_UNKNOWN_FIELDS: True, **({"properties": fields} if fields else {})}


def list_of(fields: Schema) -> Schema:
    """A list of objects with these fields."""
    return {"type": "array", "items": open_object(fields)}


def whole_number(minimum: int, width: str = "int32") -> Schema:
    """An integer of at least `minimum`."""
    return {"type": "integer", "format": width, "minimum": minimum}


def choice(words: Iterable[StrEnum]) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": [word.value for word in words]}


def replica_fields() -> Schema:
    """The fields of a replica spec."""
    return {"replicas": whole_number(0), "restartPolicy": choice(RestartPolicy), "template": open_object({})}


def flat_policies() -> Schema:
    """The policies that flat generations have in spec itself."""
    return {
        PolicyField.CLEAN_POD_POLICY.value: choice(CleanPodPolicy),
        PolicyField.TTL.value: whole_number(0),
        PolicyField.ACTIVE_DEADLINE.value: whole_number(0, "int64"),
        PolicyField.BACKOFF_LIMIT.value: whole_number(0),
    }


def nested_policies() -> Schema:
    """The policies that only spec.runPolicy has."""
    scheduling = {
        "minAvailable": whole_number(0),
        "minResources": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        "priorityClass": dict(TEXT),
        "queue": dict(TEXT),
        "scheduleTimeoutSeconds": whole_number(0),
    }
    return {
        PolicyField.SCHEDULING.value: open_object(scheduling),
        PolicyField.SUSPEND.value: dict(TRUTH),
        PolicyField.MANAGED_BY.value: dict(TEXT),
    }


def tarragon_status(fields: Schema) -> Schema:
    """The schema of `status.tarragon`, with these fields.

    It is atomic, so that servers track the manager of the whole and not of each field: that would be a fifth of the
    object, and a tenth of the CPU of a write in Kubernetes 1.37. 1.20 does it nevertheless.
    """
    return {**open_object(fields), "x-kubernetes-map-type": "atomic"}


def tarragon_fields() -> Schema:
    """The fields that printer columns and the scale subresource read. The others are internal."""
    return {
        "message": dict(TEXT),
        "progress": open_object({"text": dict(TEXT)}),
        "ready": dict(TEXT),
        "reason": dict(TEXT),
        "replicas": whole_number(0),
        "restarts": open_object({"total": whole_number(0)}),
        "selector": dict(TEXT),
        "state": dict(TEXT),
    }


def job_schema(shape: KindShape, descriptions: Mapping[str, str]) -> Schema:
    """The schema of a kind that has nothing but replica specs and a run policy. Each call returns a new value.

    `descriptions` are those of the job, its replica specs and their template.
    """
    replica_specs: Schema = {"type": "object", "additionalProperties": open_object(replica_fields())}
    run_policy = open_object(flat_policies() | nested_policies())
    whole = object_schema({shape.replica_specs: replica_specs, RUN_POLICY: run_policy})
    describe(whole, {**DESCRIPTIONS, f"spec.{shape.replica_specs}.*": "The replicas of one type.", **descriptions})
    return whole


def object_schema(spec_fields: Schema) -> Schema:
    """The schema of a whole job with these fields in its spec, without descriptions."""
    return open_object(
        {
            "apiVersion": dict(TEXT),
            "kind": dict(TEXT),
            "metadata": {"type": "object"},
            "spec": open_object(spec_fields),
            "status": open_object({"tarragon": tarragon_status(tarragon_fields())}),
        }
    )
