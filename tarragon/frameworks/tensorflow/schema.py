"""The OpenAPI schema of TFJob, a union of all generations: types, enums and minima, no required fields, no defaults.

A required field of v1 would reject status writes of v1alpha1 objects, and a default of v1 would be added to them.
"""

from __future__ import annotations

from tarragon.frameworks.kubeflow.field_descriptions import describe
from tarragon.frameworks.kubeflow.schema import (
    TEXT,
    TRUTH,
    Schema,
    choice,
    flat_policies,
    list_of,
    nested_policies,
    object_schema,
    open_object,
    replica_fields,
    whole_number,
)
from tarragon.frameworks.tensorflow.field_descriptions import DESCRIPTIONS
from tarragon.frameworks.tensorflow.fields import SpecField
from tarragon.job.model import SuccessPolicy


def schema() -> Schema:
    """The schema of the whole object. Each call returns a new value, which the caller may modify."""
    whole = object_schema(_spec_fields())
    describe(whole, DESCRIPTIONS)
    return whole


def _spec_fields() -> Schema:
    return {
        SpecField.REPLICAS.value: {"type": "object", "additionalProperties": open_object(replica_fields())},
        SpecField.LIST.value: list_of({**replica_fields(), "tfPort": whole_number(1), "tfReplicaType": dict(TEXT)}),
        "replica_specs": list_of({**replica_fields(), "tf_port": whole_number(1), "tf_replica_type": dict(TEXT)}),
        SpecField.RUN_POLICY.value: open_object(flat_policies() | nested_policies()),
        **flat_policies(),
        SpecField.SUCCESS_POLICY.value: choice(SuccessPolicy),
        SpecField.DYNAMIC_WORKER.value: dict(TRUTH),
        SpecField.MAX_INSTANCES.value: whole_number(1),
        SpecField.MIN_INSTANCES.value: whole_number(1),
        "RuntimeId": dict(TEXT),
        "schedulerName": dict(TEXT),
        "tensorboard": open_object(_tensorboard_fields()),
        "terminationPolicy": open_object(
            {"chief": open_object({"replicaIndex": whole_number(0), "replicaName": dict(TEXT)})}
        ),
        "tfImage": dict(TEXT),
    }


def _tensorboard_fields() -> Schema:
    return {
        "logDir": dict(TEXT),
        "serviceType": dict(TEXT),
        "volumeMounts": list_of({}),
        "volumes": list_of({}),
    }
