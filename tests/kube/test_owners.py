"""Which object a reference names: namespace, group, kind, name and uid, all of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, group_of

JOB = decode(
    encode(
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "a", "namespace": "n", "uid": "u-1"}}
    ),
    CustomObject,
)
REFERENCE = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "a", "uid": "u-1", "controller": True}


def owned(*references: dict[str, Any], namespace: str = "n") -> Pod:
    metadata = {"name": "a-worker-0", "namespace": namespace, "ownerReferences": list(references)}
    return msgspec.convert({"metadata": metadata}, Pod)


def test_a_pod_is_its_controllers() -> None:
    assert owned(REFERENCE).metadata.controller_identity == JOB.owner_identity


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta2", "v2"])
def test_a_reference_by_another_version_of_the_api_names_the_same_job(version: str) -> None:
    pod = owned({**REFERENCE, "apiVersion": f"kubeflow.org/{version}"})

    assert pod.metadata.controller_identity == JOB.owner_identity


def test_a_pod_of_another_namespace_is_not_the_jobs() -> None:
    assert owned(REFERENCE, namespace="other").metadata.controller_identity != JOB.owner_identity


@pytest.mark.parametrize(
    "wrong",
    [
        {"apiVersion": "nowhere.example/v1"},
        {"apiVersion": "mlkube.io/v1beta1"},
        {"apiVersion": "v1"},
        {"apiVersion": "kubeflow.org/x/v1"},
        {"apiVersion": ""},
        {"kind": "TfJob"},
        {"kind": "PyTorchJob"},
        {"kind": ""},
        {"name": "b"},
        {"name": ""},
        {"uid": "u-2"},
        {"uid": ""},
    ],
    ids=str,
)
def test_a_reference_that_differs_in_group_kind_name_or_uid_names_another_object(wrong: dict[str, str]) -> None:
    assert owned({**REFERENCE, **wrong}).metadata.controller_identity != JOB.owner_identity


def test_an_owner_that_is_not_the_controller_owns_nothing_here() -> None:
    controller = {**REFERENCE, "name": "b", "uid": "u-2"}
    second = {**REFERENCE, "controller": False}

    assert owned(second).metadata.controller_identity is None
    assert owned().metadata.controller_identity is None
    assert owned(second, controller).metadata.controller_identity != JOB.owner_identity


@pytest.mark.parametrize(
    ("api_version", "group"), [("v1", ""), ("apps/v1", "apps"), ("kubeflow.org/v1", "kubeflow.org"), ("", "")]
)
def test_the_group_is_what_stands_before_the_version(api_version: str, group: str) -> None:
    assert group_of(api_version) == group


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.kind)
def test_all_generations_of_a_kind_are_of_one_group(framework: Any) -> None:
    """So a job has one identity whatever generation it is read as, and pods of the old operators stay its own."""
    groups = {group_of(dialect.api_version) for dialect in framework.dialects}

    assert groups == {framework.resource.group}
    assert framework.resource.kind == framework.kind
