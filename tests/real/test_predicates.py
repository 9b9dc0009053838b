"""Whether a node takes a pod: our answer beside that of a real kube-scheduler, in worlds made at random.

Known differences, which no world has in it:
- a node that is not ready, or cordoned, gets nobody from us, even who tolerates that: it is away;
- ports of a node are counted by number and protocol, whatever hostIP says: kube-scheduler lets two addresses share one;
- the 1.20 that is asked here counts all pods for a spread with an empty selector, 1.37 none: as we do;
- before 1.25, kube-scheduler refuses a pod that asks for some memory where others hold more than all cpu, and the like;
- minDomains (1.30), policies of spreads (1.33), matchLabelKeys (1.34) and namespaceSelector (1.24) are only asked of a
  Kubernetes that is new enough; sidecars and amounts of whole pods are in test_scheduling_cases.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarragon.base.clock import SystemClock
from tarragon.base.resources import add_resources, subtract
from tarragon.client.http.client import HttpClient
from tarragon.client.port import DeleteOptions
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.kube.core import NAMESPACES, NODES, PODS, Node, Pod
from tarragon.kube.meta import Key, OwnerIdentity, PartialObjectMetadata, Resource
from tarragon.kube.scheduling.host_ports import HOST_PORT_PREFIX, ONE_PORT
from tarragon.kube.scheduling.node_resources import node_allocatable
from tarragon.kube.scheduling.pod_requests import scheduling_request
from tarragon.plan.nodes.feasibility import infeasible_reason
from tarragon.plan.nodes.pod_index import PodIndex
from tarragon.plan.nodes.topology import GangConstraints, NodeTopology, ReplicaTypePods
from tarragon.scheduling.api.snapshot import Demand, NodeState
from tarragon.scheduling.placement.fit import assign
from tarragon.scheduling.state.ledger import NodeLedger
from tests.real.scene import connect
from tests.real.worlds import HOST, OVERHEAD, RUNTIME, World, worlds
from tools.controlplane import CONTROLLERS, ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

Json = dict[str, Any]
FIXED = (*range(1, 101), 714432541)
"""The last has a cordoned node, and a spread that ignores the node selector."""
FURTHER = 20
PATIENCE = 120.0
RUNTIME_CLASSES = Resource(
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    kind="RuntimeClass",
    model=PartialObjectMetadata,
    namespaced=False,
)
"""Nodes are as they are made: nobody is to taint them, and no namespace gets accounts."""
ELSEWHERE = [
    msgspec.convert({"metadata": {"name": name, "labels": dict.fromkeys((HOST, "zone", "rack"), name)}}, Node)
    for name in ("elsewhere-1", "elsewhere-2", "elsewhere-3")
]
"""Nodes of other worlds: a spread that ignores the node selector counts them, and none has more than three domains."""
FLAGS = ["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]


def would_we(world: World) -> bool:
    """Whether we would put the pod on the node that is pinned."""
    nodes = [msgspec.convert(body, Node) for body in world.nodes]
    there = [pod for body in world.pods for pod in [as_seen(body, world)] if not pod.is_finished]
    asking = as_seen(world.asking, world)
    member = ReplicaTypePods.of(WORKER, asking.metadata.namespace, asking.metadata.labels, asking.spec)
    eligible = frozenset(node.metadata.name for node in nodes if infeasible_reason(asking.spec, node) is None)
    owner = OwnerIdentity(namespace="n", group="kubeflow.org", kind="TFJob", name="j", uid="mine")
    topology, placed = NodeTopology([*nodes, *ELSEWHERE]), PodIndex(there)
    ties = GangConstraints([member], owner).feasible_nodes({WORKER: eligible}, topology, placed)[WORKER]
    demand = Demand(
        type=WORKER,
        resources=scheduling_request(asking.spec),
        minimum=1,
        requested=1,
        eligible_nodes=ties.eligible & {world.pinned},
        topology_constraints=ties.spreads,
    )
    return assign([demand], NodeLedger.of_free([state(node, there, demand) for node in nodes])) is not None


def as_seen(body: Json, world: World) -> Pod:
    name = body["metadata"]["name"]
    metadata = {**body["metadata"], **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if name in world.ending else {})}
    phase = "Succeeded" if name in world.finished else "Running"
    return msgspec.convert({**body, "metadata": metadata, "status": {"phase": phase}}, Pod, strict=False)


def state(node: Node, pods: Iterable[Pod], demand: Demand) -> NodeState:
    ports = {name: ONE_PORT for name in demand.resources if name.startswith(HOST_PORT_PREFIX)}
    capacity = {**node_allocatable(node), **ports}
    held = add_resources(scheduling_request(pod.spec) for pod in pods if pod.spec.node_name == node.metadata.name)
    return NodeState(name=node.metadata.name, capacity=capacity, free=subtract(capacity, held))


def without_oversold(world: World) -> World:
    """Of the pods that are there, those that have room: nobody has looked whether they fit."""
    nodes = {body["metadata"]["name"]: msgspec.convert(body, Node) for body in world.nodes}
    kept: list[Json] = []
    for body in world.pods:
        pods = [as_seen(each, world) for each in (*kept, body)]
        running = [pod for pod in pods if not pod.is_finished]
        each = Demand(
            type=WORKER, resources=scheduling_request(pods[-1].spec), minimum=1, requested=1, eligible_nodes=frozenset()
        )
        after = state(nodes[pods[-1].spec.node_name], running, each).free
        if all(amount >= 0 for amount in after.values()):
            kept.append(body)
    return replace(world, pods=kept)


def chosen(minor: int) -> Iterator[World]:
    seeds = [*FIXED, *(random.Random().randrange(10**6, 10**9) for _ in range(FURTHER))]
    for seed in seeds:
        yield from map(without_oversold, worlds(seed, minor=minor))


async def made(http: HttpClient, several: list[World]) -> None:
    """In the order in which they have to be there."""
    few = asyncio.Semaphore(48)

    async def each(work: Iterable[Awaitable[object]]) -> None:
        async def one(awaitable: Awaitable[object]) -> None:
            async with few:
                await awaitable

        await asyncio.gather(*(one(awaitable) for awaitable in work))

    fat = {"handler": "fat", "overhead": {"podFixed": OVERHEAD}}
    await http.create(RUNTIME_CLASSES.with_model(dict), {**header(RUNTIME_CLASSES, RUNTIME), **fat})
    names = [name for world in several for name in world.namespaces]
    await each(http.create(NAMESPACES.with_model(dict), header(NAMESPACES, name)) for name in names)
    await each(http.create(NODES.with_model(dict), body) for world in several for body in world.nodes)
    await each(http.create(PODS.with_model(dict), body) for world in several for body in world.pods)
    await each(http.delete(PODS, key, DeleteOptions()) for world in several for key in keys(world, world.ending))
    over = {"status": {"phase": "Succeeded"}}
    await each(
        http.patch(PODS.with_model(dict), key, over, subresource="status")
        for world in several
        for key in keys(world, world.finished)
    )
    await each(http.create(PODS.with_model(dict), world.asking) for world in several)


def header(resource: Resource[Any], name: str) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


def keys(world: World, names: frozenset[str]) -> list[Key]:
    of_pods = [Key(body["metadata"]["namespace"], body["metadata"]["name"]) for body in world.pods]
    return [key for key in of_pods if key.name in names]


async def answers(http: HttpClient) -> dict[str, str]:
    """By world: the node, or why there is none; without those that are still to be answered."""
    found = {}
    for pod in (await http.list(PODS)).items:
        if pod.metadata.name != "asks":
            continue
        condition = pod.condition("PodScheduled")
        if pod.spec.node_name:
            found[pod.metadata.namespace] = pod.spec.node_name
        elif condition is not None and condition.reason == "Unschedulable":
            found[pod.metadata.namespace] = f"no: {condition.message}"
    return found


def differences(several: list[World], expected: dict[str, bool], found: dict[str, str]) -> dict[str, str]:
    """By world, what each of the two says."""
    return {
        world.name: f"we say {expected[world.name]}, kube-scheduler {answer}\n{told(world)}"
        for world in several
        for answer in [found.get(world.name, "nothing yet")]
        if world.name not in found or expected[world.name] != (answer == world.pinned)
    }


def told(world: World) -> str:
    bodies = [*world.nodes, *world.pods, world.asking]
    lines = [msgspec.json.encode(body).decode() for body in bodies]
    return "\n".join([f"pinned {world.pinned} ending {set(world.ending)} finished {set(world.finished)}", *lines])


async def test_kube_scheduler_takes_a_pod_where_we_would_and_refuses_it_where_we_would(tmp_path: Path) -> None:
    plane = ControlPlane.start(tmp_path / "control-plane", arguments=FLAGS)
    plane.kill(CONTROLLERS)
    several = list(chosen(plane.minor))
    expected = {world.name: would_we(world) for world in several}
    try:
        async with connect(plane.kubeconfig) as http:
            await made(http, several)
            differing = await settled(http, several, expected)
    finally:
        plane.stop()

    assert not differing, f"{len(differing)} of {len(several)}:\n" + "\n\n".join(list(differing.values())[:5])
    assert len(several) > 200
    assert 0.15 < sum(expected.values()) / len(several) < 0.85


async def settled(http: HttpClient, several: list[World], expected: dict[str, bool]) -> dict[str, str]:
    """Who is refused at first because the scheduler has not seen some node yet is asked about again by itself."""
    clock = SystemClock()
    end = clock.monotonic() + PATIENCE
    quiet_since, before = clock.monotonic(), ""
    while True:
        differing = differences(several, expected, await answers(http))
        if not differing or clock.monotonic() > end:
            return differing
        if (now := str(sorted(differing))) != before:
            quiet_since, before = clock.monotonic(), now
        elif clock.monotonic() - quiet_since > PATIENCE / 6:
            return differing
        await clock.sleep(1.0)
