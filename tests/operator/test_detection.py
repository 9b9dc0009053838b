from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgspec
import pytest

from tarragon.kube.codec import format_micro_time, format_time
from tarragon.kube.core import Pod, PodStatus
from tarragon.kube.meta import ObjectMeta
from tarragon.operator.coexistence.detection import (
    ClusterState,
    LeaderElectionLock,
    OperatorDeployment,
    detect_operators,
    operators_by_kind,
)

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
TRAINING_LEASE = "1ca428e5.training-operator.kubeflow.org"
OF_TRAINING_OPERATOR = ["JAXJob", "MPIJob", "TFJob"]
Json = dict[str, Any]


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def lease(name: str, renewed: dt.datetime, holder: str = "pod-1") -> LeaderElectionLock:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "kubeflow", "uid": name},
            "spec": {"holderIdentity": holder, "renewTime": format_micro_time(renewed), "leaseDurationSeconds": 15},
        },
        LeaderElectionLock,
    )


def endpoints(name: str, said: str) -> LeaderElectionLock:
    annotations = {"control-plane.alpha.kubernetes.io/leader": said}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "kubeflow", "annotations": annotations}}, LeaderElectionLock
    )


def deployment(name: str, image: str, *args: str, available: int = 1) -> OperatorDeployment:
    container = {"name": "manager", "image": image, "args": list(args)}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "kubeflow"},
            "spec": {"template": {"spec": {"containers": [container]}}},
            "status": {"availableReplicas": available} if available else {},
        },
        OperatorDeployment,
    )


def kinds(found: ClusterState) -> list[str]:
    return sorted(operators_by_kind(detect_operators(found, ClusterState(), NOW)))


@pytest.mark.parametrize(
    ("name", "expected"), [(TRAINING_LEASE, OF_TRAINING_OPERATOR), ("mpi-operator", ["MPIJob"]), ("ours", [])]
)
def test_a_lease_that_is_renewed_tells_whose_jobs_are_taken(name: str, expected: list[str]) -> None:
    assert kinds(ClusterState(leases=[lease(name, ago(3))])) == expected


def test_the_lock_of_the_first_operators_is_an_annotation_of_endpoints() -> None:
    said = json.dumps({"holderIdentity": "pod-1", "renewTime": format_time(ago(3)), "leaseDurationSeconds": 15})

    assert kinds(ClusterState(endpoints=[endpoints("tf-operator", said)])) == ["TFJob"]


@pytest.mark.parametrize("renewed", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"])
def test_a_lock_of_a_time_beyond_the_calendar_is_nobodys(renewed: str) -> None:
    said = json.dumps({"holderIdentity": "pod-1", "renewTime": renewed, "leaseDurationSeconds": 15})

    assert kinds(ClusterState(endpoints=[endpoints("tf-operator", said)])) == []


@pytest.mark.parametrize("said", ["", "not json", "[]", '{"renewTime": 5, "holderIdentity": "a"}', "{}", "[" * 5000])
def test_a_lock_that_says_nothing_sensible_is_nobodys(said: str) -> None:
    assert kinds(ClusterState(endpoints=[endpoints("tf-operator", said)])) == []


def test_a_lock_that_was_let_go_or_left_behind_is_nobodys() -> None:
    assert kinds(ClusterState(leases=[lease(TRAINING_LEASE, ago(3600))])) == []
    assert kinds(ClusterState(leases=[lease(TRAINING_LEASE, ago(1), holder="")])) == []


def test_what_was_renewed_between_two_looks_is_held_whatever_the_clocks_say() -> None:
    before, after = (ClusterState(leases=[lease(TRAINING_LEASE, ago(seconds))]) for seconds in (7262, 7202))

    assert detect_operators(before, ClusterState(), NOW) == []
    assert detect_operators(before, before, NOW) == []
    (rival,) = detect_operators(after, before, NOW)
    assert str(rival) == f"training-operator (Lease kubeflow/{TRAINING_LEASE}, held by pod-1)"


@pytest.mark.parametrize(
    ("name", "image", "expected"),
    [
        ("training-operator", "kubeflow/training-operator:v1-855e096", OF_TRAINING_OPERATOR),
        ("trainer", "registry.local:5000/kubeflow/training-operator@sha256:0123", OF_TRAINING_OPERATOR),
        ("tf-job-operator", "gcr.io/kubeflow-images-public/tf_operator:v0.5.0", ["TFJob"]),
        ("tf-operator", "my.registry/whatever:1", ["TFJob"]),
        ("mpi-operator", "mpioperator/mpi-operator:0.6.0", ["MPIJob"]),
        ("gpus", "riyazhu/kubeshare-device-manager:debug", ["SharePod"]),
        ("kubeshare-device-manager", "my.registry/whatever:1", ["SharePod"]),
        ("kubeshare-scheduler", "riyazhu/kubeshare-scheduler:develop", []),
        ("tarragon", "example.org/tarragon:1", []),
        ("tf-job-dashboard", "gcr.io/kubeflow-images-public/tf_operator_dashboard:v0.5.0", []),
        ("training-operator-docs", "nginx", []),
    ],
)
def test_a_deployment_is_known_by_its_image_or_its_name(name: str, image: str, expected: list[str]) -> None:
    assert kinds(ClusterState(deployments=[deployment(name, image)])) == expected


@pytest.mark.parametrize(
    ("namespace", "phase", "expected"),
    [("kube-system", "Running", ["SharePod"]), ("kube-system", "Failed", []), ("mine", "Running", [])],
)
def test_the_first_kubeshare_is_a_pod_without_a_deployment(namespace: str, phase: str, expected: list[str]) -> None:
    metadata = ObjectMeta(name="kubeshare-device-manager", namespace=namespace)

    assert kinds(ClusterState(pods=[Pod(metadata=metadata, status=PodStatus(phase=phase))])) == expected


def test_a_deployment_without_pods_does_nothing() -> None:
    stopped = deployment("training-operator", "kubeflow/training-operator", available=0)

    assert kinds(ClusterState(deployments=[stopped])) == []


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--enable-scheme=tfjob"], ["TFJob"]),
        (["--enable-scheme=PyTorchJob", "--enable-scheme=mpijob"], ["MPIJob"]),
        (["--enable-scheme", "TFJob"], ["TFJob"]),
        (["--enable-scheme=pytorchjob"], []),
        (["--leader-elect"], OF_TRAINING_OPERATOR),
    ],
)
def test_a_training_operator_keeps_the_kinds_that_it_was_told_to(args: list[str], expected: list[str]) -> None:
    told = deployment("training-operator", "kubeflow/training-operator", *args)

    assert kinds(ClusterState(deployments=[told])) == expected


def test_all_who_keep_a_kind_are_named() -> None:
    found = ClusterState(
        leases=[lease("mpi-operator", ago(3))],
        deployments=[deployment("training-operator", "kubeflow/training-operator")],
    )

    assert operators_by_kind(detect_operators(found, ClusterState(), NOW)) == {
        "MPIJob": "mpi-operator (Lease kubeflow/mpi-operator, held by pod-1), "
        "training-operator (Deployment kubeflow/training-operator)",
        **dict.fromkeys(("JAXJob", "TFJob"), "training-operator (Deployment kubeflow/training-operator)"),
    }
