"""Which events are about a job, and in what order they are told."""

from __future__ import annotations

import json

import msgspec
import pytest

from tarragon.cli.jobview.events import events_of_job, sorted_events
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.codec import decode
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, JsonObject
from tests.cli.manifests import group, job, python

MINE = "uid-of-the-job"


def digits() -> ClusterJob:
    body = json.loads(job("digits", PS=group(python("")), Worker=group(python(""))))
    body["metadata"] |= {"namespace": "default", "uid": MINE, "creationTimestamp": "2026-11-21T12:00:00Z"}
    return read_job(FRAMEWORKS[0], decode(json.dumps(body), CustomObject))


def event(name: str, second: int = 1, *, uid: str = "another", version: int = 1, kind: str = "Pod") -> JsonObject:
    return {
        "metadata": {"resourceVersion": str(version)},
        "involvedObject": {"kind": kind, "name": name, "uid": uid},
        "lastTimestamp": f"2026-11-21T12:00:{second:02}Z",
    }


def test_events_of_replicas_whose_pods_are_gone_belong_to_the_job() -> None:
    gone, own = event("digits-ps-0"), event("digits", uid=MINE, kind="TFJob")

    assert list(events_of_job([gone, event("digits-two-worker-0"), own, event("other-worker-0")], digits(), [])) == [
        gone,
        own,
    ]


def test_events_of_an_earlier_job_of_that_name_do_not() -> None:
    before = {**event("digits-ps-0"), "lastTimestamp": "2026-11-21T11:59:59Z"}

    assert list(events_of_job([before, event("digits", uid="former", kind="TFJob")], digits(), [])) == []


@pytest.mark.parametrize(
    ("wrong", "is_told"),
    [({}, True), ({"apiVersion": "nowhere.example/v1"}, False), ({"kind": "TfJob"}, False), ({"name": "two"}, False)],
    ids=["none", "group", "kind", "name"],
)
def test_events_of_a_pod_that_is_there_are_the_jobs_if_it_controls_the_pod(
    wrong: JsonObject,
    is_told: bool,  # noqa: FBT001 - an expectation
) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "digits", "uid": MINE, "controller": True}
    metadata = {
        "name": "digits-ps-0",
        "namespace": "default",
        "uid": "another",
        "ownerReferences": [{**owner, **wrong}],
    }
    pod = msgspec.convert({"metadata": metadata}, Pod)

    events = list(events_of_job([event("digits-ps-0")], digits(), [pod]))

    assert bool(events) is is_told


def test_events_are_told_oldest_first_and_within_a_second_as_they_were_written() -> None:
    late, second, first = event("a", 5, version=3), event("b", 2, version=10), event("c", 2, version=9)

    assert sorted_events([late, second, first]) == [first, second, late]
