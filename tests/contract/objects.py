"""Objects as the contract's tests need them: only what a test is about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from tarragon.client.port import Client, Selector, WatchEvent
from tarragon.kube.core import CONFIG_MAPS, NODES, PODS
from tarragon.kube.meta import Resource

Json = dict[str, Any]

WHOLE_PODS = PODS.with_model(dict)
WHOLE_NODES = NODES.with_model(dict)
WHOLE_CONFIG_MAPS = CONFIG_MAPS.with_model(dict)

PATIENCE = 60.0


def config_map(namespace: str, name: str, *, labels: Mapping[str, str] | None = None, **data: str) -> Json:
    metadata = {"name": name, "namespace": namespace, **({"labels": dict(labels)} if labels else {})}
    return {"metadata": metadata, **({"data": data} if data else {})}


def pod(namespace: str, name: str, **spec: Any) -> Json:
    container = {"name": "main", "image": "example.com/nothing:1"}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": [container], **spec}}


def gadget(resource: Resource[Json], namespace: str, name: str, **spec: Any) -> Json:
    """Of a custom kind the body must say what it is."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


class Seen:
    """A running watch, read one event at a time, without its bookmarks."""

    def __init__(self, events: AsyncIterator[WatchEvent[Json]]) -> None:
        self._events = events

    async def next(self) -> tuple[str, Json]:
        async with asyncio.timeout(PATIENCE):
            while True:
                event = await anext(self._events)
                if event.object is not None:
                    return event.type, event.object


@asynccontextmanager
async def watching(cluster: Client, resource: Resource[Json], selection: Selector, since: str) -> AsyncIterator[Seen]:
    events = cluster.watch(resource, selection, since)
    async with aclosing(events):  # type: ignore[type-var]
        yield Seen(events)
