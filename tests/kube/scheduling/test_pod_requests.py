from __future__ import annotations

from typing import Any

import msgspec

from tarragon.base.resources import CPU, MEMORY
from tarragon.kube.core import Node, PodSpec
from tarragon.kube.scheduling.node_resources import HOST_PORTS, node_allocatable, overcommitted_resources
from tarragon.kube.scheduling.pod_requests import pod_limits, scheduling_request
from tests.kube.scheduling.kubernetes_cases import container, on_port, sidecar

GI = 2**30 * 1000


def spec(**fields: Any) -> PodSpec:
    return msgspec.convert({"containers": [container()], **fields}, PodSpec)


def node(**fields: Any) -> Node:
    return msgspec.convert(fields, Node)


def test_a_pod_without_requests_takes_one_of_the_node_s_pods() -> None:
    assert scheduling_request(PodSpec()) == {"pods": 1000}


def test_a_host_port_is_a_resource_by_number_and_protocol() -> None:
    found = scheduling_request(spec(**on_port(80, "UDP")))

    assert found == {"pods": 1000, "host-port:80:UDP": 1000}


def test_limits_add_up_as_requests_do() -> None:
    init = [sidecar({}), container({}, {"cpu": 5})]

    assert pod_limits(spec(containers=[container({}, {"cpu": 2})], initContainers=init)) == {CPU: 5000}


def test_pod_level_limits_replace_those_of_containers() -> None:
    found = pod_limits(spec(containers=[container({}, {"cpu": 2})], resources={"limits": {"cpu": 8, "memory": "1Gi"}}))

    assert found == {CPU: 8000, MEMORY: GI}


def test_overhead_is_added_only_to_resources_that_are_limited() -> None:
    found = pod_limits(spec(containers=[container({}, {"cpu": 2})], overhead={"cpu": "250m", "memory": "1Gi"}))

    assert found == {CPU: 2250}


def test_a_node_offers_what_is_allocatable_or_else_its_capacity() -> None:
    both = node(status={"allocatable": {"cpu": "3500m"}, "capacity": {"cpu": 4, "memory": "1Gi"}})

    assert node_allocatable(both) == {CPU: 3500}
    assert node_allocatable(node(status={"capacity": {"cpu": 2}})) == {CPU: 2000}


def test_the_resources_that_may_be_overcommitted_are_separated_by_commas() -> None:
    annotated = node(metadata={"annotations": {"tarragon.dev/overcommit": "cpu, hostPorts,"}})

    assert overcommitted_resources(annotated) == {CPU, HOST_PORTS}
    assert overcommitted_resources(node()) == frozenset()
