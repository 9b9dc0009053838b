from __future__ import annotations

import json
from typing import Any

import pytest

from tarragon.frameworks.registry import FRAMEWORKS, framework_of, misspelled_kind
from tarragon.job.model import GENERATION_ANNOTATION
from tests.frameworks.jobs import dialect_of, problems, taken, tfjob


def with_metadata(manifest: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


def last_applied(api_version: str) -> dict[str, str]:
    return {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"apiVersion": api_version})}


def written_by(manager: str, api_version: str, time: str, field: str = "f:spec") -> dict[str, Any]:
    return {"manager": manager, "apiVersion": api_version, "time": time, "fieldsV1": {field: {}}}


@pytest.mark.parametrize(
    ("spec", "generation"),
    [
        ({}, "kubeflow.org/v1"),
        ({"runPolicy": {"cleanPodPolicy": "All"}}, "kubeflow.org/v1"),
        ({"successPolicy": "AllWorkers"}, "kubeflow.org/v1"),
        ({"enableDynamicWorker": True}, "kubeflow.org/v1"),
        ({"runPolicy": {}, "cleanPodPolicy": "All"}, "kubeflow.org/v1"),
        ({"cleanPodPolicy": "All"}, "kubeflow.org/v1-flat"),
        ({"backoffLimit": 3}, "kubeflow.org/v1-flat"),
        ({"cleanPodPolicy": None}, "kubeflow.org/v1"),
        ({"max-instances": 4}, "kubeflow.org/v1-dragon"),
        ({"min-instances": 1, "runPolicy": {}}, "kubeflow.org/v1-dragon"),
    ],
)
def test_the_shape_tells_the_generation(spec: dict[str, Any], generation: str) -> None:
    assert dialect_of(tfjob(**spec)).name == generation


def test_the_mark_counts_whatever_the_shape_has_become() -> None:
    job = with_metadata(tfjob(runPolicy={}), annotations={GENERATION_ANNOTATION: "kubeflow.org/v1-flat"})

    assert dialect_of(job).name == "kubeflow.org/v1-flat"


def test_a_mark_that_nobody_knows_is_a_problem() -> None:
    job = with_metadata(tfjob(), annotations={GENERATION_ANNOTATION: "kubeflow.org/v7"})

    assert taken(job).dialect is None
    assert problems(job) == [
        (
            'metadata.annotations["tarragon.dev/generation"]: this version of Tarragon does not know the generation '
            "'kubeflow.org/v7'; use the version of Tarragon that wrote it, or remove the field to have the job "
            "recognised again"
        )
    ]


def test_equal_shapes_are_told_apart_by_what_kubectl_applied() -> None:
    job = with_metadata(tfjob(cleanPodPolicy="All"), annotations=last_applied("kubeflow.org/v1beta2"))

    assert dialect_of(job).name == "kubeflow.org/v1beta2"


def test_equal_shapes_are_told_apart_by_the_oldest_writer_of_spec_that_is_not_ourselves() -> None:
    job = with_metadata(
        tfjob(),
        managedFields=[
            written_by("sdk", "kubeflow.org/v1", "2026-11-21T12:00:00Z"),
            written_by("tarragon", "kubeflow.org/v1", "2026-11-21T09:00:00Z"),
            written_by("kubelet", "kubeflow.org/v1", "2026-11-21T08:00:00Z", "f:status"),
            written_by("fairing", "kubeflow.org/v1alpha2", "2026-11-21T10:00:00Z"),
        ],
    )

    assert dialect_of(job).name == "kubeflow.org/v1alpha2"


def test_a_shape_of_one_generation_only_needs_no_witness() -> None:
    job = with_metadata(tfjob(runPolicy={}), annotations=last_applied("kubeflow.org/v1alpha2"))

    assert dialect_of(job).name == "kubeflow.org/v1"


@pytest.mark.parametrize("annotation", ["", "{", "[1]", "null", '{"apiVersion": 3}', "[" * 100_000])
def test_a_garbled_witness_is_no_witness(annotation: str) -> None:
    garbled = {"kubectl.kubernetes.io/last-applied-configuration": annotation}

    assert dialect_of(with_metadata(tfjob(), annotations=garbled)).name == "kubeflow.org/v1"


@pytest.mark.parametrize(
    ("api_version", "spec"),
    [
        ("kubeflow.org/v1alpha2", {}),
        ("kubeflow.org/v1alpha2", {"cleanPodPolicy": "All"}),
        ("kubeflow.org/v1beta1", {"cleanPodPolicy": "All"}),
        ("kubeflow.org/v1beta2", {"activeDeadlineSeconds": 3}),
    ],
)
def test_where_shapes_are_equal_the_version_that_its_user_wrote_decides(api_version: str, spec: dict[str, Any]) -> None:
    assert dialect_of({**tfjob(**spec), "apiVersion": api_version}).name == api_version


@pytest.mark.parametrize(
    ("spec", "generation"), [({}, "kubeflow.org/v1"), ({"backoffLimit": 3}, "kubeflow.org/v1-flat")]
)
def test_without_a_witness_it_is_what_v1_was_when_it_looked_like_that(spec: dict[str, Any], generation: str) -> None:
    job = with_metadata(tfjob(**spec), managedFields=[written_by("tarragon", "kubeflow.org/v1alpha2", "2026")])

    assert dialect_of(job).name == generation


@pytest.mark.parametrize("field", ["replicaSpecs", "replica_specs"])
def test_a_list_of_replicas_is_an_old_job_whatever_stands_beside_it(field: str) -> None:
    job = tfjob(runPolicy={})
    job["spec"] |= {field: [], "max-instances": 3}

    assert dialect_of(job).name == "kubeflow.org/v1alpha1"


def test_the_list_decides_also_when_the_api_server_serves_it_as_v1() -> None:
    job = tfjob()
    job["spec"] = {"replicaSpecs": []}

    assert dialect_of(job).name == "kubeflow.org/v1alpha1"


def test_the_catalog_finds_the_framework_of_every_generation() -> None:
    tensorflow, mlkube, mpi, jax, sharepod = FRAMEWORKS

    assert framework_of("kubeflow.org/v1", "TFJob") is tensorflow
    assert framework_of("mlkube.io/v1beta1", "TfJob") is mlkube
    assert framework_of("kubeflow.org/v2beta1", "MPIJob") is mpi
    assert framework_of("kubeflow.org/v1", "JAXJob") is jax
    assert framework_of("kubeshare.nthu/v1", "SharePod") is sharepod
    assert framework_of("v1", "Pod") is None
    assert framework_of(None, 3) is None


@pytest.mark.parametrize("spec", [None, {}, {"tfImage": "x"}])
def test_a_v1alpha1_without_any_replicas_is_told_of_its_own_list(spec: Any) -> None:
    manifest = {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "metadata": {"name": "x"}, "spec": spec}

    (problem,) = problems(manifest)
    assert "replicaSpecs" in problem
    assert "tfReplicaSpecs" not in problem


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        ("kubeflow.org/v1", "TFJob", "None"),
        ("v1", "ConfigMap", "None"),
        ("kubeflow.org/v1", "TFjob", "kind: unknown kind TFjob; did you mean TFJob?"),
        ("kubeflow.org/v1", "TFJobs", "kind: unknown kind TFJobs; did you mean TFJob?"),
        ("kubeflow.org/v3", "TFJob", "apiVersion: TFJob has no version kubeflow.org/v3; write kubeflow.org/v1"),
        (
            "kubeflow.org/v2beta2",
            "MPIJob",
            "apiVersion: MPIJob has no version kubeflow.org/v2beta2; write kubeflow.org/v2beta1",
        ),
        ("kubeflow.org/v2", "MPIJob", "apiVersion: MPIJob has no version kubeflow.org/v2; write kubeflow.org/v2beta1"),
        ("kubeflow.org/v3", "MPIJob", "apiVersion: MPIJob has no version kubeflow.org/v3; write kubeflow.org/v2beta1"),
        (
            "kubeflow.org/v1beta1",
            "MPIJob",
            "apiVersion: MPIJob has no version kubeflow.org/v1beta1; write kubeflow.org/v1",
        ),
        (
            "kubeflow.org/v1alpha3",
            "MPIJob",
            "apiVersion: MPIJob has no version kubeflow.org/v1alpha3; write kubeflow.org/v1alpha2",
        ),
        ("kubeflow.org/V1", "MPIJob", "apiVersion: MPIJob has no version kubeflow.org/V1; write kubeflow.org/v1"),
        (
            "kubeflow.org/v2beta1",
            "JAXJob",
            "apiVersion: JAXJob has no version kubeflow.org/v2beta1; write kubeflow.org/v1",
        ),
        (
            "kubeflow.org/v1beta3",
            "TFJob",
            "apiVersion: TFJob has no version kubeflow.org/v1beta3; write kubeflow.org/v1beta2",
        ),
        (
            "kubeflow.org/v2beta1",
            "TFJob",
            "apiVersion: TFJob has no version kubeflow.org/v2beta1; write kubeflow.org/v1",
        ),
        ("mlkube.io/v1beta1", "TfJob", "None"),
        ("mlkube.io/v1beta1", "TFJob", "kind: TFJob has no version mlkube.io/v1beta1; did you mean TfJob?"),
        ("kubeflow.org/v1", "TfJob", "kind: TfJob has no version kubeflow.org/v1; did you mean TFJob?"),
        ("mlkube.io/v1", "TfJob", "apiVersion: TfJob has no version mlkube.io/v1; write mlkube.io/v1beta1"),
        ("mlkube/v1beta1", "TfJob", "apiVersion: TfJob has no apiVersion mlkube/v1beta1; write mlkube.io/v1beta1"),
        ("kubeflow/v1", "tfjob", "apiVersion: TFJob has no apiVersion kubeflow/v1; write kubeflow.org/v1"),
        ("batch/v1", "TFJob", "apiVersion: TFJob has no apiVersion batch/v1; write kubeflow.org/v1"),
        (
            "tensorflow.org/v1alpha1",
            "TfJob",
            (
                "apiVersion: TfJob has no apiVersion tensorflow.org/v1alpha1;"
                " write mlkube.io/v1beta1, which has the same fields"
            ),
        ),
        (3, "TFJob", "apiVersion: TFJob has no apiVersion 3; write kubeflow.org/v1"),
    ],
)
def test_a_misspelled_kind_or_version_gets_the_right_spelling(api_version: str, kind: str, message: str) -> None:
    assert str(misspelled_kind(api_version, kind)) == message
