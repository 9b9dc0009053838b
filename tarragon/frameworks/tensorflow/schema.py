"""The OpenAPI schema of TFJob, a union of all generations: types, enums and minima, no required fields, no defaults.

A required field of v1 would reject status writes of v1alpha1 objects, and a default of v1 would be added to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from tarragon.frameworks.tensorflow.field_descriptions import describe
from tarragon.frameworks.tensorflow.fields import PolicyField, SpecField
from tarragon.job.model import CleanPodPolicy, RestartPolicy, SuccessPolicy
from tarragon.kube.meta import Json

Schema = dict[str, Json]

PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"

TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}


def schema() -> Schema:
    """The schema of the whole object. Each call returns a new value, which the caller may modify."""
    whole = _open(
        {
            "apiVersion": dict(TEXT),
            "kind": dict(TEXT),
            "metadata": {"type": "object"},
            "spec": _open(_spec_fields()),
            "status": _open({"tarragon": _open(_tarragon_fields())}),
        }
    )
    describe(whole)
    return whole


def _spec_fields() -> Schema:
    return {
        SpecField.REPLICAS.value: {"type": "object", "additionalProperties": _open(_replica_fields())},
        SpecField.LIST.value: _list({**_replica_fields(), "tfPort": _whole(1), "tfReplicaType": dict(TEXT)}),
        "replica_specs": _list({**_replica_fields(), "tf_port": _whole(1), "tf_replica_type": dict(TEXT)}),
        SpecField.RUN_POLICY.value: _open(_policies() | _nested_policies()),
        **_policies(),
        SpecField.SUCCESS_POLICY.value: _choice(SuccessPolicy),
        SpecField.DYNAMIC_WORKER.value: dict(TRUTH),
        SpecField.MAX_INSTANCES.value: _whole(1),
        SpecField.MIN_INSTANCES.value: _whole(1),
        "RuntimeId": dict(TEXT),
        "schedulerName": dict(TEXT),
        "tensorboard": _open(_tensorboard_fields()),
        "terminationPolicy": _open({"chief": _open({"replicaIndex": _whole(0), "replicaName": dict(TEXT)})}),
        "tfImage": dict(TEXT),
    }


def _tensorboard_fields() -> Schema:
    return {"logDir": dict(TEXT), "serviceType": dict(TEXT), "volumeMounts": _list({}), "volumes": _list({})}


def _replica_fields() -> Schema:
    return {"replicas": _whole(0), "restartPolicy": _choice(RestartPolicy), "template": _open({})}


def _policies() -> Schema:
    return {
        PolicyField.CLEAN_POD_POLICY.value: _choice(CleanPodPolicy),
        PolicyField.TTL.value: _whole(0),
        PolicyField.ACTIVE_DEADLINE.value: _whole(0, "int64"),
        PolicyField.BACKOFF_LIMIT.value: _whole(0),
    }


def _nested_policies() -> Schema:
    scheduling = {
        "minAvailable": _whole(0),
        "minResources": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        "priorityClass": dict(TEXT),
        "queue": dict(TEXT),
        "scheduleTimeoutSeconds": _whole(0),
    }
    return {
        PolicyField.SCHEDULING.value: _open(scheduling),
        PolicyField.SUSPEND.value: dict(TRUTH),
        PolicyField.MANAGED_BY.value: dict(TEXT),
    }


def _tarragon_fields() -> Schema:
    """The fields that printer columns and the scale subresource read. The others are internal."""
    return {
        "message": dict(TEXT),
        "ready": dict(TEXT),
        "reason": dict(TEXT),
        "replicas": _whole(0),
        "restarts": _open({"total": _whole(0)}),
        "selector": dict(TEXT),
        "state": dict(TEXT),
    }


def _open(fields: Schema) -> Schema:
    """An object that keeps unknown fields, so that the operator can report them."""
    return {"type": "object", PRESERVE_UNKNOWN_FIELDS: True, **({"properties": fields} if fields else {})}


def _list(fields: Schema) -> Schema:
    return {"type": "array", "items": _open(fields)}


def _whole(minimum: int, width: str = "int32") -> Schema:
    return {"type": "integer", "format": width, "minimum": minimum}


def _choice(words: Iterable[StrEnum]) -> Schema:
    return {"type": "string", "enum": [word.value for word in words]}
