"""Pieces of the OpenAPI schemas of CustomResourceDefinitions: types, enums and minima, no defaults."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from tarragon.frameworks.kubeflow.fields import PolicyField
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


def tarragon_status() -> Schema:
    """The fields that printer columns and the scale subresource read. The others are internal."""
    return {
        "message": dict(TEXT),
        "ready": dict(TEXT),
        "reason": dict(TEXT),
        "replicas": whole_number(0),
        "restarts": open_object({"total": whole_number(0)}),
        "selector": dict(TEXT),
        "state": dict(TEXT),
    }
