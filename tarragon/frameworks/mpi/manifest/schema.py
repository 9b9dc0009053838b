"""The OpenAPI schema of MPIJob, a union of all generations: types, enums and minima, and no defaults."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.field_descriptions import describe
from tarragon.frameworks.kubeflow.schema import (
    TEXT,
    TRUTH,
    Schema,
    choice,
    flat_policies,
    nested_policies,
    object_schema,
    open_object,
    replica_fields,
    whole_number,
)
from tarragon.frameworks.mpi.fields import MAX_REPLICAS, MIN_REPLICAS, SpecField, V1Alpha1Field
from tarragon.frameworks.mpi.manifest.field_descriptions import DESCRIPTIONS
from tarragon.frameworks.mpi.options import Implementation, LauncherCreation


def schema() -> Schema:
    """The schema of the whole object. Each call returns a new value, which the caller may modify."""
    whole = object_schema(_spec_fields())
    describe(whole, DESCRIPTIONS)
    return whole


def _spec_fields() -> Schema:
    return {
        SpecField.REPLICAS.value: {"type": "object", "additionalProperties": open_object(replica_fields())},
        SpecField.RUN_POLICY.value: open_object(flat_policies() | nested_policies()),
        **flat_policies(),
        SpecField.SLOTS.value: whole_number(1),
        SpecField.MAIN_CONTAINER.value: dict(TEXT),
        SpecField.SSH_PATH.value: dict(TEXT),
        SpecField.IMPLEMENTATION.value: choice(Implementation),
        SpecField.CREATION.value: choice(LauncherCreation),
        SpecField.LAUNCHER_WORKS.value: dict(TRUTH),
        SpecField.ELASTIC_POLICY.value: open_object({MIN_REPLICAS: whole_number(1), MAX_REPLICAS: whole_number(1)}),
        V1Alpha1Field.TEMPLATE.value: open_object({}),
        V1Alpha1Field.GPUS.value: whole_number(1),
        V1Alpha1Field.GPUS_PER_NODE.value: whole_number(1),
        V1Alpha1Field.UNITS.value: whole_number(1),
        V1Alpha1Field.UNITS_PER_NODE.value: whole_number(1),
        V1Alpha1Field.RESOURCE.value: dict(TEXT),
        V1Alpha1Field.WORKERS.value: whole_number(0),
        V1Alpha1Field.ON_MASTER.value: dict(TRUTH),
    }
