"""The table of generations agrees with the dialects."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, PolicyField
from tarragon.frameworks.tensorflow.conversion.generations import FIELDS, GENERATIONS, SpecLayout
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW
from tests.conversion.test_there_and_back import taken
from tests.frameworks.jobs import template

by_name = pytest.mark.parametrize("name", GENERATIONS)

VALUES: dict[str, Any] = {
    "RuntimeId": "ab12",
    "tfImage": "x",
    "tensorboard": {"logDir": "/logs"},
    "terminationPolicy": {"chief": {"replicaName": "MASTER", "replicaIndex": 0}},
    "schedulerName": "x",
    "successPolicy": "AllWorkers",
    "enableDynamicWorker": True,
    "max-instances": 2,
    "min-instances": 1,
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 1,
    "activeDeadlineSeconds": 1,
    "backoffLimit": 1,
    "schedulingPolicy": {"queue": "x"},
    "suspend": True,
    "managedBy": "x",
}


def smallest(name: str) -> dict[str, Any]:
    """The smallest job of a generation, with its annotation, as some manifests are valid in several generations."""
    generation = GENERATIONS[name]
    one: Any = {"template": template()}
    replicas = {"replicaSpecs": [one]} if generation.is_list else {"tfReplicaSpecs": {"Worker": one}}
    metadata = {"name": "dist", "annotations": {"tarragon.dev/generation": name}}
    return {"apiVersion": generation.api_version, "kind": generation.kind, "metadata": metadata, "spec": replicas}


def test_the_table_has_every_dialect() -> None:
    dialects = [dialect for framework in (TENSORFLOW, MLKUBE) for dialect in framework.dialects]

    assert set(GENERATIONS) == {dialect.name for dialect in dialects}
    assert {name: generation.api_version for name, generation in GENERATIONS.items()} == {
        dialect.name: dialect.api_version for dialect in dialects
    }


@by_name
def test_the_defaults_of_the_table_are_those_of_the_dialect(name: str) -> None:
    found = taken(smallest(name))

    assert found.dialect is not None
    assert found.dialect.name == name
    assert found.job is not None
    assert found.job.run_policy.clean_pod_policy is GENERATIONS[name].clean_pods


@by_name
@pytest.mark.parametrize("field", sorted(FIELDS))
def test_the_fields_of_the_table_are_those_that_the_dialect_accepts(name: str, field: str) -> None:
    manifest = smallest(name)
    manifest["spec"][field] = VALUES[field]

    found = taken(manifest)
    effective = [*found.unknown_fields, *found.warnings]

    assert (field in GENERATIONS[name].effective_fields) == (
        not any(said.path == f"spec.{field}" for said in effective)
    )


@by_name
@pytest.mark.parametrize("policy", PolicyField)
def test_the_policies_of_the_table_are_those_that_the_dialect_follows(name: str, policy: PolicyField) -> None:
    generation = GENERATIONS[name]
    plain, manifest = smallest(name), smallest(name)
    if policy in FLAT_POLICIES and generation.shape is SpecLayout.FLAT:
        manifest["spec"][policy.value] = VALUES[policy]
    else:
        manifest["spec"]["runPolicy"] = {policy.value: VALUES[policy]}

    before, after = taken(plain).job, taken(manifest).job
    is_heeded = before is not None and after is not None and before.run_policy != after.run_policy

    # In the flat v1, runPolicy counts only if it is added to a job whose generation is already known.
    assert is_heeded == (policy in generation.policies or generation.name == "kubeflow.org/v1-flat")


def test_each_generation_has_its_own_annotation_for_converted_fields() -> None:
    names = [generation.extra_annotation for generation in GENERATIONS.values()]

    assert len(set(names)) == len(names)
    assert GENERATIONS["mlkube.io/v1beta1"].extra_annotation == "tarragon.dev/mlkube-extra"
    assert GENERATIONS["kubeflow.org/v1alpha1"].extra_annotation == "tarragon.dev/v1alpha1-extra"
