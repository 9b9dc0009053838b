"""What is said of the generations, held against their dialects."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.tensorflow.conversion.generations import FIELDS, GENERATIONS, Shape
from tarragon.frameworks.tensorflow.fields import FLAT_POLICIES, Policy
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
    """A job of one replica that says nothing else, marked: some could be of several generations."""
    generation = GENERATIONS[name]
    one: Any = {"template": template()}
    replicas = {"replicaSpecs": [one]} if generation.is_list else {"tfReplicaSpecs": {"Worker": one}}
    metadata = {"name": "dist", "annotations": {"tarragon.dev/generation": name}}
    return {"apiVersion": generation.api_version, "kind": generation.kind, "metadata": metadata, "spec": replicas}


def test_there_is_one_for_each_dialect() -> None:
    dialects = [dialect for framework in FRAMEWORKS for dialect in framework.dialects]

    assert set(GENERATIONS) == {dialect.name for dialect in dialects}
    assert {name: generation.api_version for name, generation in GENERATIONS.items()} == {
        dialect.name: dialect.api_version for dialect in dialects
    }


@by_name
def test_where_nothing_is_said_it_means_what_the_dialect_reads(name: str) -> None:
    found = taken(smallest(name))

    assert found.dialect is not None
    assert found.dialect.name == name
    assert found.job is not None
    assert found.job.run_policy.clean_pods is GENERATIONS[name].clean_pods


@by_name
@pytest.mark.parametrize("field", sorted(FIELDS))
def test_it_has_the_fields_that_its_dialect_takes_without_a_word(name: str, field: str) -> None:
    manifest = smallest(name)
    manifest["spec"][field] = VALUES[field]

    found = taken(manifest)
    effective = [*found.unknown, *found.warnings]

    assert (field in GENERATIONS[name].counting) == (not any(said.path == f"spec.{field}" for said in effective))


@by_name
@pytest.mark.parametrize("policy", Policy)
def test_it_has_the_policies_that_its_dialect_heeds(name: str, policy: Policy) -> None:
    generation = GENERATIONS[name]
    plain, manifest = smallest(name), smallest(name)
    if policy in FLAT_POLICIES and generation.shape is Shape.FLAT:
        manifest["spec"][policy.value] = VALUES[policy]
    else:
        manifest["spec"]["runPolicy"] = {policy.value: VALUES[policy]}

    before, after = taken(plain).job, taken(manifest).job
    is_heeded = before is not None and after is not None and before.run_policy != after.run_policy

    # In the flat v1 runPolicy counts only where it was added to a job that was recognised before.
    assert is_heeded == (policy in generation.policies or generation.name == "kubeflow.org/v1-flat")


def test_the_annotations_in_which_they_keep_what_others_lack_are_told_apart() -> None:
    names = [generation.extra for generation in GENERATIONS.values()]

    assert len(set(names)) == len(names)
    assert GENERATIONS["mlkube.io/v1beta1"].extra == "tarragon.dev/mlkube-extra"
    assert GENERATIONS["kubeflow.org/v1alpha1"].extra == "tarragon.dev/v1alpha1-extra"
