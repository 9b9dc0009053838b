"""The recorder itself: one that cannot detect partial gangs would always report none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import CustomObject, Key
from tests.recording.gangs import GangRecord, report

Json = dict[str, Any]
KEY = Key("default", "job")
CPU = {"requests": {"cpu": "1"}}
SPEC = {"containers": [{"name": "tensorflow", "image": "i", "resources": CPU}]}


def a_job(bounds: Json | None = None, **nodes: dict[str, str]) -> CustomObject:
    """A job with one parameter server and two workers. Assignments are like `PS={"a": "0"}`."""
    admission: Json = {"queued": "2026-01-01T00:00:00.000000Z", "nodes": nodes}
    if nodes:
        admission["admitted"] = admission["queued"]
    groups = {kind: {"replicas": number, "template": {"spec": SPEC}} for kind, number in (("PS", 1), ("Worker", 2))}
    found = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "job", "namespace": "default", "uid": "u"},
        "spec": {"tfReplicaSpecs": groups, **(bounds or {})},
        "status": {"tarragon": {"admission": admission}},
    }
    return decode(encode(found), CustomObject)


def a_pod(name: str, node: str, phase: str = "Running") -> Pod:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "job", "uid": "u", "controller": True}
    metadata = {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]}
    found = {"metadata": metadata, "spec": {**SPEC, "nodeName": node}, "status": {"phase": phase}}
    return msgspec.convert(found, Pod)


@pytest.fixture
def record() -> GangRecord:
    record = GangRecord()
    for name in ("a", "b"):
        status = {"allocatable": {"cpu": "2", "pods": "10"}}
        record.node(0, Key("", name), msgspec.convert({"metadata": {"name": name}, "status": status}, Node))
    return record


def binds(record: GangRecord, at: float, name: str, node: str) -> None:
    record.pod(at, Key("default", name), None, a_pod(name, node))


def test_pods_bound_while_other_replicas_are_unassigned_are_a_partial_gang(record: GangRecord) -> None:
    record.job(1, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0"}))
    binds(record, 2, "job-ps-0", "a")
    record.job(5, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0", "b": "1"}))

    assert next(report(record)) == "seconds with a partial gang: 3"


def test_pods_created_in_sequence_are_no_partial_gang_if_all_replicas_are_assigned(record: GangRecord) -> None:
    record.job(1, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0", "b": "1"}))
    for at, (name, node) in enumerate([("job-ps-0", "a"), ("job-worker-0", "a"), ("job-worker-1", "b")], 2):
        binds(record, at, name, node)

    assert (record.partial.total, record.incomplete.longest) == (0, 2)


def test_an_elastic_gang_that_gave_back_a_low_index_is_no_partial_gang(record: GangRecord) -> None:
    bounds = {"min-instances": 2, "max-instances": 4}
    record.job(1, TENSORFLOW, a_job(bounds, PS={"a": "0"}, Worker={"a": "0,2", "b": "1"}))
    for name, node in [("job-ps-0", "a"), ("job-worker-0", "a"), ("job-worker-1", "b"), ("job-worker-2", "a")]:
        binds(record, 2, name, node)
    record.pod(3, Key("default", "job-worker-1"), a_pod("job-worker-1", "b"), None)
    record.job(4, TENSORFLOW, a_job(bounds, PS={"a": "0"}, Worker={"a": "0,2"}))
    record.end(9)

    assert record.partial.total == 0


def test_an_elastic_gang_below_its_minimum_is_a_partial_gang(record: GangRecord) -> None:
    bounds = {"min-instances": 2, "max-instances": 4}
    record.job(1, TENSORFLOW, a_job(bounds, PS={"a": "0"}, Worker={"a": "3"}))
    binds(record, 2, "job-ps-0", "a")
    binds(record, 2, "job-worker-3", "a")
    record.end(9)

    assert record.partial.total == 7


def test_a_lost_node_is_recorded_separately(record: GangRecord) -> None:
    record.job(1, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0", "b": "1"}))
    for name, node in [("job-ps-0", "a"), ("job-worker-0", "a"), ("job-worker-1", "b")]:
        binds(record, 2, name, node)
    record.node(3, Key("", "b"), None)
    record.pod(8, Key("default", "job-worker-1"), a_pod("job-worker-1", "b"), None)
    record.job(9, TENSORFLOW, a_job(PS={"a": "0"}, Worker={"a": "0-1"}))

    assert (record.partial.total, record.displaced.longest) == (0, 6)


def test_pods_of_an_unassigned_job_are_recorded_until_they_are_gone(record: GangRecord) -> None:
    record.job(1, TENSORFLOW, a_job())
    binds(record, 2, "job-ps-0", "a")
    record.pod(6, Key("default", "job-ps-0"), a_pod("job-ps-0", "a"), None)

    assert (record.partial.total, record.leaving.longest) == (0, 4)


def test_a_pod_that_exceeds_its_node_is_recorded(record: GangRecord) -> None:
    for number in range(3):
        binds(record, 2, f"job-worker-{number}", "a")

    record.pod(3, Key("default", "job-worker-3"), None, a_pod("job-worker-3", "a", "Pending"))

    assert (len(record.oversold), len(record.bound_beyond)) == (1, 2)
    assert record.oversold[0].startswith("a by default/job-worker-2")
