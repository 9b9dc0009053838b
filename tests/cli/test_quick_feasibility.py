"""Of which jobs it is known without the scheduler that this machine can start them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tarragon.cli.manifest.quick_feasibility import MANY_REPLICAS, may_lack_nodes, surely_fit
from tarragon.frameworks.registry import DEFAULT_FRAMEWORK
from tarragon.job.model import TrainingJob
from tarragon.kube.core import Node
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tests.cli.manifests import group, job, python


def decoded(**groups: Mapping[str, Any]) -> Sequence[TrainingJob]:
    found = decode_and_validate(DEFAULT_FRAMEWORK, json.loads(job("digits", **groups))).job
    assert found is not None
    return [found]


def workers(
    replicas: int = 1, *, spec: Mapping[str, Any] | None = None, gpus: int = 0, **requests: Any
) -> Sequence[TrainingJob]:
    """The job of so many workers that request this each, with these fields of the pods."""
    wanted = group(python("print(1)", resources={"limits": {"nvidia.com/gpu": gpus}, "requests": requests}), replicas)
    return decoded(Worker={**wanted, "template": {"spec": {**wanted["template"]["spec"], **(spec or {})}}})


def node(
    name: str = "a", *, is_ready: bool = True, shared: str = "", spec: Any = None, has: dict[str, str] | None = None
) -> Node:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"} | (has or {})
    return msgspec.convert(
        {
            "metadata": {"name": name, "annotations": {"tarragon.dev/overcommit": shared}},
            "spec": spec or {},
            "status": {
                "conditions": [{"type": "Ready", "status": str(is_ready)}],
                "allocatable": allocatable,
            },
        },
        Node,
    )


def test_a_job_that_requests_nothing_and_chooses_no_node_may_run_anywhere() -> None:
    assert not may_lack_nodes(workers(4))
    assert not may_lack_nodes([])


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"disk": "ssd"}},
        {"nodeName": "b"},
        {"affinity": {"podAntiAffinity": {}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"volumes": [{"name": "data", "ephemeral": {}}]},
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        {"runtimeClassName": "gvisor"},
    ],
)
def test_what_chooses_among_nodes_is_left_to_the_scheduler(spec: Mapping[str, Any]) -> None:
    chosen = workers(spec=spec)

    assert may_lack_nodes(chosen)
    assert not surely_fit(chosen, [node()])


def test_nodes_may_lack_room_for_many_replicas_even_if_these_request_nothing() -> None:
    many = workers(501)

    assert not may_lack_nodes(workers(MANY_REPLICAS))
    assert may_lack_nodes(many)
    assert not surely_fit(many, [node(has={"pods": "500"})])
    assert surely_fit(many, [node(has={"pods": "501"})])


def test_a_volume_of_the_node_itself_chooses_none() -> None:
    assert not may_lack_nodes(workers(spec={"volumes": [{"name": "data", "emptyDir": {}}]}))


def test_what_is_requested_must_fit() -> None:
    assert may_lack_nodes(workers(memory="8Gi"))
    assert surely_fit(workers(memory="8Gi"), [node()])
    assert not surely_fit(workers(memory="9Gi"), [node()])
    assert not surely_fit(workers(gpus=1), [node()])
    assert surely_fit(workers(gpus=1), [node(has={"nvidia.com/gpu": "1"})])


def test_all_replicas_must_fit_together() -> None:
    two = [node("a"), node("b")]

    assert surely_fit(workers(4, cpu=2), two)
    assert not surely_fit(workers(5, cpu=2), two)
    assert not surely_fit(workers(2, cpu=3), [node()])
    assert surely_fit(workers(2, cpu=3), two)
    assert not surely_fit(
        workers(3, cpu=3), [*two, node("c", has={"cpu": "1"})]
    )  # as much in total, but too fragmented


def test_replicas_of_all_types_count() -> None:
    asks = group(python("print(1)", resources={"requests": {"memory": "5Gi"}}))
    both = decoded(Chief=asks, Worker=asks)

    assert not surely_fit(both, [node()])
    assert surely_fit(both, [node("a"), node("b")])


def test_what_may_be_overcommitted_is_never_short() -> None:
    assert surely_fit(workers(cpu=5000), [node(shared="cpu,hostPorts")])
    assert not surely_fit(workers(cpu=5000, memory="9Gi"), [node(shared="cpu,hostPorts")])


@pytest.mark.parametrize(
    "away",
    [
        node(is_ready=False),
        node(spec={"unschedulable": True}),
        node(spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}),
    ],
)
def test_a_node_that_may_refuse_pods_does_not_count(away: Node) -> None:
    assert not surely_fit(workers(memory="1Gi"), [away])
    assert not surely_fit(workers(memory="1Gi"), [])
    assert surely_fit(workers(memory="1Gi"), [away, node("b")])


def test_parts_of_gpus_and_host_ports_are_left_to_the_scheduler() -> None:
    part = group(python("print(1)"))
    part["template"]["metadata"] = {"annotations": {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "0.5"}}
    port = group(python("print(1)", ports=[{"containerPort": 80, "hostPort": 80}]))

    for asks in (decoded(Worker=part), decoded(Worker=port)):
        assert may_lack_nodes(asks)
        assert not surely_fit(asks, [node(has={"nvidia.com/gpu": "4"})])
