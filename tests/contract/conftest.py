from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.cluster.errors import NotFound
from tarragon.cluster.port import Cluster
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tarragon.kube.meta import Key, Resource
from tests.contract.implementations import IMPLEMENTATIONS

Json = dict[str, Any]
Gadgets = Resource[Json]

PATIENCE = 20.0


@pytest.fixture(params=list(IMPLEMENTATIONS))
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with IMPLEMENTATIONS[request.param](tmp_path) as made:
        yield made


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """One of its own for every test, as the cluster may be shared."""
    name = f"contract-{uuid.uuid4().hex[:12]}"
    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
    return name


@pytest.fixture
async def gadgets(cluster: Cluster) -> Gadgets:
    """A custom kind of its own, with a schema, a status and a scale, in two versions."""
    group = f"contract-{uuid.uuid4().hex[:12]}.example.com"
    await cluster.create(CUSTOM_RESOURCE_DEFINITIONS, definition(group))
    resource = Resource(group=group, version="v1", plural="gadgets", kind="Gadget", model=dict)
    async with asyncio.timeout(PATIENCE):
        await _established(cluster, Key("", f"gadgets.{group}"))
        await _served(cluster, resource)
        await _served(cluster, older(resource))
    return resource


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


async def _established(cluster: Cluster, key: Key) -> None:
    whole = CUSTOM_RESOURCE_DEFINITIONS.reading(dict)
    clock = SystemClock()
    while True:
        found = await cluster.get(whole, key)
        conditions = found.get("status", {}).get("conditions") or []
        if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            return
        await clock.sleep(0.05)  # a real server establishes a kind in its own time


async def _served(cluster: Cluster, resource: Gadgets) -> None:
    """A real server answers 404 for a moment after it has called a kind established."""
    clock = SystemClock()
    while True:
        try:
            await cluster.list(resource)
        except NotFound:
            await clock.sleep(0.05)
        else:
            return
