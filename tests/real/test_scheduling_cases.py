"""A real kube-scheduler decides every case of tests/kube/scheduling as written there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.http.client import HttpClient
from tarragon.kube.core import NAMESPACES, NODES, PODS
from tarragon.kube.meta import Key
from tests.kube.scheduling.kubernetes_cases import NODES as NODE_CASES
from tests.kube.scheduling.kubernetes_cases import REQUESTS, NodeCase, RequestCase, container
from tests.real.scene import connect
from tools.controlplane import CONTROLLERS, ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

Json = dict[str, Any]
CASE = "tests.tarragon.dev/case"
NAMESPACE = "cases"
FLAGS = ["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]
"""Nodes are as they are made: nobody is to taint them, and no namespace gets accounts."""
PATIENCE, STABLE = 90.0, 15.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """Whether a node accepts a pod. `key` is the name of the node, and a label of it that the pod selects."""

    key: str
    text: str
    spec: Json
    accepts: bool
    allocatable: Mapping[str, str]
    others: Sequence[Json] = ()
    status_of_others: Json | None = None
    labels: Mapping[str, str] | None = None
    node_spec: Json | None = None

    @property
    def node(self) -> Json:
        status = {"allocatable": self.allocatable, "capacity": self.allocatable, "conditions": [READY]}
        metadata = {"name": self.key, "labels": {**(self.labels or {}), CASE: self.key}}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": self.node_spec or {},
            "status": status,
        }

    @property
    def asking(self) -> Json:
        selector = {**self.spec.get("nodeSelector", {}), CASE: self.key}
        return pod(self.key, {**self.spec, "nodeSelector": selector})

    @property
    def bound(self) -> Iterator[Json]:
        for number, spec in enumerate(self.others):
            yield pod(f"{self.key}-{number}", {**spec, "nodeName": self.key})


READY = {"type": "Ready", "status": "True", "reason": "Test", "message": "of a test"}


def pod(name: str, spec: Json) -> Json:
    spec = {"containers": [container()], **spec}
    several = {
        field: [{**each, "name": f"{field.lower()}-{number}"} for number, each in enumerate(spec[field])]
        for field in ("containers", "initContainers")
        if field in spec
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **several}}


def questions(minor: int) -> Iterator[Question]:
    for number, case in enumerate(REQUESTS):
        if case.is_valid and case.since <= minor:
            yield from about_requests(f"r{number}", case)
    for number, about in enumerate(NODE_CASES):
        if about.is_valid and about.since <= minor:
            yield about_node(f"n{number}", about)


def about_requests(key: str, case: RequestCase) -> Iterator[Question]:
    """The pod fits a node with exactly its requests, and none that lacks a thousandth of a core, or one of the rest."""
    exact = {name: f"{round(amount * 1000)}m" for name, amount in case.requests.items()}
    yield Question(key=key, text=case.name, spec=case.spec, accepts=True, allocatable={**exact, "pods": "1"})
    for place, (name, amount) in enumerate(case.requests.items()):
        less = round(amount * 1000) - (1 if name == "cpu" else 1000)
        allocatable = {**exact, name: f"{less}m", "pods": "1"}
        yield Question(
            key=f"{key}-{place}", text=f"{case.name}: {name}", spec=case.spec, accepts=False, allocatable=allocatable
        )


def about_node(key: str, case: NodeCase) -> Question:
    return Question(
        key=key,
        text=case.name,
        spec=case.spec,
        accepts=case.accepts,
        allocatable={"cpu": "8", "memory": "8Gi", "pods": "3"},
        others=case.others,
        status_of_others=case.status_of_others,
        labels=case.labels,
        node_spec={"taints": list(case.taints), **({"unschedulable": True} if case.unschedulable else {})},
    )


async def test_kube_scheduler_decides_every_case_as_written(tmp_path: Path) -> None:
    plane = ControlPlane.start(tmp_path / "control-plane", arguments=FLAGS)
    plane.kill(CONTROLLERS)
    several = list(questions(plane.minor))
    try:
        async with connect(plane.kubeconfig) as http:
            await http.create(NAMESPACES.with_model(dict), {"metadata": {"name": NAMESPACE}})
            await asyncio.gather(*(http.create(NODES.with_model(dict), each.node) for each in several))
            await asyncio.gather(*(http.create(PODS.with_model(dict), body) for each in several for body in each.bound))
            await asyncio.gather(*(reported(http, each) for each in several))
            await asyncio.gather(*(http.create(PODS.with_model(dict), each.asking) for each in several))
            differing = await settled(http, several)
    finally:
        plane.stop()

    assert differing == []


async def reported(http: HttpClient, question: Question) -> None:
    """Write the status of the other pods. `pod` numbers the containers, so that their names are as in the spec."""
    if not question.status_of_others:
        return
    status = dict(question.status_of_others)
    states = {"ready": True, "restartCount": 0, "image": "i", "imageID": ""}
    containers = status.get("containerStatuses", [])
    status["containerStatuses"] = [
        {**each, **states, "name": f"containers-{number}"} for number, each in enumerate(containers)
    ]
    for body in question.bound:
        key = Key(NAMESPACE, body["metadata"]["name"])
        await http.patch(PODS.with_model(dict), key, {"status": status}, subresource="status")


async def settled(http: HttpClient, several: Sequence[Question]) -> list[str]:
    """The differences, once they stay: a pod is tried again when the scheduler sees its node."""
    clock = SystemClock()
    end = clock.monotonic() + PATIENCE
    stable_since, before = clock.monotonic(), [""]
    while True:
        found = await answers(http)
        differing = [
            f"{each.text}: we say {each.accepts}, kube-scheduler {found.get(each.key, 'nothing')}"
            for each in several
            if found.get(each.key) is not each.accepts
        ]
        now = clock.monotonic()
        if differing != before:
            stable_since, before = now, differing
        if not differing or now > end or now - stable_since > STABLE:
            return differing
        await clock.sleep(0.3)


async def answers(http: HttpClient) -> dict[str, bool]:
    """Whether the pod is bound, by its name; without pods that were not tried yet."""
    found = {}
    for each in (await http.list(PODS)).items:
        condition = each.condition("PodScheduled")
        if each.spec.node_name:
            found[each.metadata.name] = True
        elif condition is not None and condition.reason == "Unschedulable":
            found[each.metadata.name] = False
    return found
