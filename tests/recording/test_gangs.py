"""The recorder itself: a measure that can't see half a gang would always say that there was none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import CustomObject, Key
from tests.recording.gangs import Record, report

Json = dict[str, Any]
KEY = Key("default", "job")
CPU = {"requests": {"cpu": "1"}}
SPEC = {"containers": [{"name": "tensorflow", "image": "i", "resources": CPU}]}


def a_job(**nodes: dict[str, str]) -> CustomObject:
    """One parameter server and two workers; places as in `PS={"a": "0"}`."""
    admission: Json = {"queued": "2026-01-01T00:00:00.000000Z", "nodes": nodes}
    if nodes:
        admission["admitted"] = admission["queued"]
    groups = {kind: {"replicas": number, "template": {"spec": SPEC}} for kind, number in (("PS", 1), ("Worker", 2))}
    found = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "job", "namespace": "default", "uid": "u"},
        "spec": {"tfReplicaSpecs": groups},
        "status": {"tarragon": {"admission": admission}},
    }
    return decode(encode(found), CustomObject)


def a_pod(name: str, node: str, phase: str = "Running") -> Pod:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "job", "uid": "u", "controller": True}
    metadata = {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]}
    found = {"metadata": metadata, "spec": {**SPEC, "nodeName": node}, "status": {"phase": phase}}
    return msgspec.convert(found, Pod)


@pytest.fixture
def record() -> Record:
    record = Record()
    for name in ("a", "b"):
        status = {"allocatable": {"cpu": "2", "pods": "10"}}
        record.node(0, Key("", name), msgspec.convert({"metadata": {"name": name}, "status": status}, Node))
    return record


def binds(record: Record, at: float, name: str, node: str) -> None:
    record.pod(at, Key("default", name), None, a_pod(name, node))


def test_pods_that_hold_nodes_while_the_others_have_no_place_are_half_a_gang(record: Record) -> None:
    record.job(1, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0"}))
    binds(record, 2, "job-ps-0", "a")
    record.job(5, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0", "b": "1"}))

    assert next(report(record)) == "seconds with half a gang: 3"


def test_pods_that_are_made_one_after_the_other_are_no_half_gang_where_all_have_their_places(record: Record) -> None:
    record.job(1, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0", "b": "1"}))
    for at, (name, node) in enumerate([("job-ps-0", "a"), ("job-worker-0", "a"), ("job-worker-1", "b")], 2):
        binds(record, at, name, node)

    assert (record.half.total, record.gathering.longest) == (0, 2)


def test_a_node_that_is_lost_is_told_apart(record: Record) -> None:
    record.job(1, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0", "b": "1"}))
    for name, node in [("job-ps-0", "a"), ("job-worker-0", "a"), ("job-worker-1", "b")]:
        binds(record, 2, name, node)
    record.node(3, Key("", "b"), None)
    record.pod(8, Key("default", "job-worker-1"), a_pod("job-worker-1", "b"), None)
    record.job(9, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0-1"}))

    assert (record.half.total, record.bereaved.longest) == (0, 6)


def test_pods_of_a_job_without_places_are_told_until_they_are_gone(record: Record) -> None:
    record.job(1, TENSORFLOW, a_job())
    binds(record, 2, "job-ps-0", "a")
    record.pod(6, Key("default", "job-ps-0"), a_pod("job-ps-0", "a"), None)

    assert (record.half.total, record.leaving.longest) == (0, 4)


def test_a_node_is_oversold_by_the_pod_that_has_no_room(record: Record) -> None:
    for number in range(3):
        binds(record, 2, f"job-worker-{number}", "a")

    record.pod(3, Key("default", "job-worker-3"), None, a_pod("job-worker-3", "a", "Pending"))

    assert (len(record.oversold), len(record.bound_beyond)) == (1, 2)
    assert record.oversold[0].startswith("a by default/job-worker-2")
