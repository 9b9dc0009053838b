from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.errors import AlreadyExists, Forbidden, NotFound, Unavailable
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS
from tarragon.kube.meta import Key, Resource
from tests.contract.implementations import EACH, IMPLEMENTATIONS
from tests.contract.objects import PATIENCE, Json, pod

Gadgets = Resource[Json]


@pytest.fixture(params=EACH)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with IMPLEMENTATIONS[request.param](request) as made:
        yield made


@pytest.fixture
async def namespace(request: pytest.FixtureRequest, cluster: Client) -> AsyncIterator[str]:
    """One of its own for every test, as the cluster may be shared. Pods can be created in it."""
    name = f"contract-{uuid.uuid4().hex[:12]}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    if not request.node.get_closest_marker("real"):
        yield name
        return
    async with asyncio.timeout(PATIENCE):
        await takes_pods(cluster, name)
    yield name
    # Another test may add a node, and pods of this one would then be scheduled on it. The namespace itself stays: to
    # delete it, a real controller lists its objects of every kind.
    for left in (await cluster.list(PODS, Selector(name))).items:
        with contextlib.suppress(NotFound):
            await cluster.delete(PODS, left.metadata.key, DeleteOptions(grace_period_seconds=0))


@pytest.fixture
async def gadgets(cluster: Client) -> Gadgets:
    """A custom kind with a schema, a status and a scale, in two versions.

    All tests share it, because a real server takes half a second to define one.
    """
    return await define_gadgets(cluster, "contract.example.com")


async def define_gadgets(cluster: Client, group: str) -> Gadgets:
    """Served when it returns; a former definition of that name may still be on its way out."""
    resource = Resource(group=group, version="v1", plural="gadgets", kind="Gadget", model=dict)
    clock = SystemClock()
    async with asyncio.timeout(PATIENCE):
        while not await _is_defined(cluster, group):
            await clock.sleep(0.05)
        await _served(cluster, resource)
        await _served(cluster, older(resource))
    return resource


async def _is_defined(cluster: Client, group: str) -> bool:
    """Defined now, and established; a real server establishes a kind in its own time."""
    with contextlib.suppress(AlreadyExists):
        await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, definition(group))
    try:
        found = await cluster.get(CUSTOM_RESOURCE_DEFINITIONS.with_model(dict), Key("", f"gadgets.{group}"))
    except NotFound:
        return False
    conditions = found.get("status", {}).get("conditions") or []
    is_established = any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
    return is_established and "deletionTimestamp" not in found["metadata"]


def older(resource: Gadgets) -> Gadgets:
    """The same kind in its other version."""
    return Resource(group=resource.group, version="v1beta1", plural=resource.plural, kind=resource.kind, model=dict)


def definition(group: str) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [_version("v1", stored=True), _version("v1beta1", stored=False)],
        },
    }


def _version(name: str, *, stored: bool) -> Json:
    spec = {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer", "minimum": 0},
            "mode": {"type": "string", "enum": ["fast", "slow"]},
            "colour": {"type": "string", "default": "green"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }


async def takes_pods(cluster: Client, namespace: str) -> None:
    """A real server refuses pods until a controller has made the namespace's service account and its token."""
    clock = SystemClock()
    while True:
        try:
            await cluster.create(PODS, pod(namespace, "first"))
        except (Forbidden, Unavailable):
            await clock.sleep(0.02)
        else:
            break
    await cluster.delete(PODS, Key(namespace, "first"), DeleteOptions(grace_period_seconds=0))


async def _served(cluster: Client, resource: Gadgets) -> None:
    """A real server answers 404 for a moment after it has called a kind established."""
    clock = SystemClock()
    while True:
        try:
            await cluster.list(resource)
        except NotFound:
            await clock.sleep(0.05)
        else:
            return
