"""A cluster, embedded or real, with a running controller and a record of all watch events."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tarragon.base.clock import SystemClock
from tarragon.client.errors import ApiError, Forbidden, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.port import ALL_OBJECTS, Client, DeleteOptions
from tarragon.kube.core import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    ENDPOINTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from tarragon.kube.meta import Key, PartialObjectMetadata, Resource
from tarragon.localcluster.controllers.kinds import listable
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.client import InProcessCluster
from tools.controlplane import ControlPlane

T = TypeVar("T")
Json = dict[str, Any]

PATIENCE = 60.0
WIDGETS = Resource(group="example.org", version="v1", plural="widgets", kind="Widget", model=PartialObjectMetadata)
FOLLOWED = (
    CONFIG_MAPS,
    ENDPOINTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)


class Controller(Protocol):
    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True, order=True)
class RecordedEvent:
    """An event of a watch. The resource version orders events of all kinds."""

    version: int
    type: str
    what: str


def name_of(resource: Resource[T], key: Key) -> str:
    return f"{resource.plural}/{key.namespace}/{key.name}" if key.namespace else f"{resource.plural}/{key.name}"


class ControllerTest(abc.ABC):
    """A cluster under test. `objects` has all objects by `plural/namespace/name`.

    In a shared cluster, namespaces and cluster-scoped objects have a suffix, which the record removes, so that a test
    is the same in every cluster.
    """

    def __init__(self, client: Client, suffix: str = "") -> None:
        self.client = client
        self.suffix = suffix
        self.clock = SystemClock()
        self.objects: dict[str, Json] = {}
        self.happened: list[RecordedEvent] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    @abc.abstractmethod
    def begin(self, make: Callable[[EmbeddedCluster], Controller]) -> None:
        """Start a controller, unless the cluster runs its own."""

    async def follow(self, resource: Resource[Any]) -> None:
        """Record all events of a kind from now on."""
        whole: Resource[Json] = resource.with_model(dict)
        listing = await self.client.list(whole)
        for item in listing.items:
            if what := self._what(whole, item):
                self.objects[what] = item
        self._tasks.append(asyncio.create_task(self._record(whole, listing.resource_version)))

    async def _record(self, resource: Resource[Json], since: str) -> None:
        async for event in self.client.watch(resource, ALL_OBJECTS, since):
            what = None if event.object is None else self._what(resource, event.object)
            if what is None or event.object is None:
                continue
            self.happened.append(RecordedEvent(int(event.resource_version), event.type, what))
            if event.type == "DELETED":
                self.objects.pop(what, None)
            else:
                self.objects[what] = event.object
            self._changed.set()

    async def until(self, claim: Callable[[], bool]) -> None:
        """Return when the claim is true. Fails with the exception of a controller that has ended."""
        async with asyncio.timeout(PATIENCE):
            while not claim():
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait({changed, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                for task in self._tasks:
                    if task.done():
                        task.result()

    async def gone(self, *whats: str) -> None:
        """Return when all of these objects have been deleted since the start of the test."""
        await self.until(lambda: set(whats) <= set(self.deleted()))

    async def there(self, *whats: str) -> None:
        await self.until(lambda: all(what in self.objects for what in whats))

    def deleted(self) -> list[str]:
        """The deleted objects, in order."""
        return [one.what for one in sorted(self.happened) if one.type == "DELETED"]

    async def create(
        self, resource: Resource[Any], name: str, *, namespace: str = "default", **body: Any
    ) -> PartialObjectMetadata:
        """Create an object. `owners`, `finalizers` and `labels` are metadata; other keywords are fields of the body."""
        key = self.key(resource, name, namespace)
        metadata: Json = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
        for word, field in (("owners", "ownerReferences"), ("finalizers", "finalizers"), ("labels", "labels")):
            if word in body:
                metadata[field] = body.pop(word)
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **body}
        created: PartialObjectMetadata = await self.client.create(resource.with_model(PartialObjectMetadata), whole)
        return created

    async def delete(self, resource: Resource[Any], name: str, how: Any = None, *, namespace: str = "default") -> None:
        key = self.key(resource, name, namespace)
        await self.client.delete(resource, key, DeleteOptions(propagation_policy=how))

    async def patch(
        self, resource: Resource[Any], name: str, patch: Json, *, namespace: str = "default", subresource: str = ""
    ) -> None:
        await self.client.patch(resource, self.key(resource, name, namespace), patch, subresource=subresource)

    def key(self, resource: Resource[Any], name: str, namespace: str = "default") -> Key:
        """The actual key of an object, with the suffix of a shared cluster."""
        return Key(namespace + self.suffix, name) if resource.namespaced else Key("", name + self.suffix)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _what(self, resource: Resource[Any], item: Json) -> str | None:
        """The name of an object in the record, None if it belongs to another test."""
        key = _key(item)
        with_suffix = key.namespace or key.name
        if not with_suffix.endswith(self.suffix):
            return None
        short = with_suffix.removesuffix(self.suffix)
        return name_of(resource, Key(short, key.name) if key.namespace else Key("", short))


class EmbeddedCluster(ControllerTest):
    """The embedded API, in process."""

    def __init__(self, api: Api) -> None:
        super().__init__(InProcessCluster(api))
        self.api = api
        self.jitter = random.Random(1)
        self.kinds = listable(api.registry)

    def begin(self, make: Callable[[EmbeddedCluster], Controller]) -> None:
        self.start(make(self))

    def start(self, controller: Controller) -> None:
        self._tasks.append(asyncio.create_task(controller.run()))

    async def close(self) -> None:
        await super().close()
        await self.api.close()


class RealWorld(ControllerTest):
    """A real control plane with its own controllers, whose behaviour ours must match."""

    def begin(self, make: Callable[[EmbeddedCluster], Controller]) -> None:
        pass

    async def clear(self) -> None:
        """Delete nodes and pods, so that later tests in the same cluster are not affected."""
        resources: tuple[Resource[Any], ...] = (PODS, NODES, NAMESPACES)
        for resource in resources:
            for what in [what for what in self.objects if what.startswith(f"{resource.plural}/")]:
                *namespace, name = what.split("/")[1:]
                with contextlib.suppress(ApiError):
                    key = self.key(resource, name, *namespace)
                    await self.client.delete(resource, key, DeleteOptions(grace_period_seconds=0))


@asynccontextmanager
async def a_real_world(plane: ControlPlane) -> AsyncIterator[RealWorld]:
    async with HttpClient(load_kubeconfig({}, path=plane.kubeconfig).rest_config, random.Random(1)) as client:
        world = RealWorld(client, suffix=f"-{uuid.uuid4().hex[:8]}")
        try:
            for name in ("default", "kube-system"):
                await world.create(NAMESPACES, name)
            async with asyncio.timeout(PATIENCE):
                await _takes_pods(world)
            for resource in FOLLOWED:
                await world.follow(resource)
            yield world
        finally:
            await world.clear()
            await world.close()


async def _takes_pods(world: ControllerTest) -> None:
    """Wait until the namespace has a service account and its token: a real server rejects pods before that."""
    while True:
        try:
            await world.create(PODS, "first", spec=pod_spec())
        except (Forbidden, Unavailable):
            await world.clock.sleep(0.02)
        else:
            break
    await world.client.delete(PODS, world.key(PODS, "first"), DeleteOptions(grace_period_seconds=0))


@asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[EmbeddedCluster]:
    world = EmbeddedCluster(await Api.open(folder / "state.db", SystemClock()))
    try:
        for resource in FOLLOWED:
            await world.follow(resource)
        yield world
    finally:
        await world.close()


def owner(kind: str, owned_by: PartialObjectMetadata, **more: Any) -> Json:
    """An owner reference as controllers write it."""
    meta = owned_by.metadata
    return {"apiVersion": more.pop("apiVersion", "v1"), "kind": kind, "name": meta.name, "uid": meta.uid, **more}


def pod_spec(**more: Any) -> Json:
    return {"containers": [{"name": "main", "image": "busybox", **more.pop("container", {})}], **more}


async def define_widgets(world: EmbeddedCluster) -> None:
    """Define a custom kind, and record its objects."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    spec = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    await world.create(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.org", spec=spec)
    await world.follow(WIDGETS)


def _key(item: Mapping[str, Any]) -> Key:
    return Key(item["metadata"].get("namespace", ""), item["metadata"]["name"])
