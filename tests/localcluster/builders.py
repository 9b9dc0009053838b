"""Objects and requests for the tests of the embedded API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tarragon.base.clock import Clock, FakeClock
from tarragon.kube.codec import decode
from tarragon.localcluster.api.requests import EncodedEvent, PatchBody, PatchType, RequestTarget, WriteOptions
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.storage.store import DEFAULT_WINDOW, HistoryWindow
from tarragon.localcluster.storage.watch import Watch

Json = dict[str, Any]

CONFIG_MAPS = ("", "v1", "configmaps")
CRDS = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
NAMESPACES = ("", "v1", "namespaces")
PODS = ("", "v1", "pods")
WIDGETS = ("example.com", "v1", "widgets")


@asynccontextmanager
async def opened(path: Path, clock: Clock | None = None, window: HistoryWindow = DEFAULT_WINDOW) -> AsyncIterator[Api]:
    api = await Api.open(path, clock or FakeClock(), window)
    try:
        yield api
    finally:
        await api.close()


def config_map(name: str, **data: str) -> Json:
    return {"metadata": {"name": name}, "data": data}


def pod(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "nothing:1"}], **spec}}


def definition(plural: str = "widgets", *, versions: list[Json] | None = None, **names: Any) -> Json:
    kind = plural[:-1].capitalize()
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": versions or [version("v1")],
        },
    }


def version(name: str, *, stored: bool = True, schema: Json | None = None, **more: Any) -> Json:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema or free},
        **more,
    }


def widget(name: str, **parts: Any) -> Json:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, **parts}


class ApiClient:
    """The Api for tests: it takes and returns decoded objects, in the namespace `default`."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def target(self, path: tuple[str, str, str], name: str = "", subresource: str = "") -> RequestTarget:
        served = self.api.registry.find(*path)
        namespace = "default" if served is None or served.namespaced else ""
        return self.api.target(path, namespace, name, subresource)

    async def create(self, path: tuple[str, str, str], body: Json, **options: Any) -> Json:
        written = await self.api.create(self.target(path), body, WriteOptions(**options))
        return _json(written.object)

    async def update(self, path: tuple[str, str, str], body: Json, subresource: str = "", **options: Any) -> Json:
        target = self.target(path, body["metadata"]["name"], subresource)
        return _json((await self.api.update(target, body, WriteOptions(**options))).object)

    async def patch(
        self,
        path: tuple[str, str, str],
        name: str,
        body: Any,
        kind: PatchType = PatchType.MERGE,
        *,
        subresource: str = "",
    ) -> Json:
        target = self.target(path, name, subresource)
        return _json((await self.api.patch(target, PatchBody(kind, body))).object)

    async def delete(self, path: tuple[str, str, str], name: str) -> Json:
        return _json((await self.api.delete(self.target(path, name))).object)

    def get(self, path: tuple[str, str, str], name: str) -> Json:
        return _json(self.api.get(self.target(path, name)))

    def names(self, path: tuple[str, str, str]) -> list[str]:
        return [_json(item)["metadata"]["name"] for item in self.api.list(self.target(path)).items]


async def ready(watch: Watch) -> list[tuple[str, Json]]:
    """The next batch of a watch, decoded."""
    return [decoded_event(event) for event in await anext(watch)]


def decoded_event(event: EncodedEvent) -> tuple[str, Json]:
    return event.type, _json(event.object)


def _json(body: bytes) -> Json:
    thing: Json = decode(body, dict)
    return thing
