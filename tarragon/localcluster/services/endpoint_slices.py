"""The controller that mirrors Endpoints into EndpointSlices, from which kubectl describes Services."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Client, Selector
from tarragon.kube.core import ENDPOINTS
from tarragon.kube.meta import Key, ObjectMeta, PartialObject, PartialObjectMetadata, Resource
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue
from tarragon.localcluster.services.endpoints import HEADLESS_LABEL

Json = dict[str, Any]

ENDPOINT_SLICES = Resource(
    group="discovery.k8s.io", version="v1", plural="endpointslices", kind="EndpointSlice", model=PartialObjectMetadata
)
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
MIRRORING_CONTROLLER = "endpointslicemirroring-controller.k8s.io"


class _Endpoints(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[Json, ...] = ()


class EndpointSliceController:
    """Mirrors each subset of an Endpoints object into a slice, which the Endpoints object owns.

    Headless Services get no slices: jobs have thousands of them, and each pod would cost more writes.
    """

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._endpoints = logged_cache(
            cluster, ENDPOINTS.with_model(_Endpoints), clock, jitter, Selector(label_selector=f"!{HEADLESS_LABEL}")
        )
        self._slice_counts: dict[Key, int] = {}
        self._queue: ReconcileQueue[Key] = ReconcileQueue(clock)
        self._endpoints.add_event_handler(self._on_change)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._endpoints.run())
            tasks.create_task(self._queue.run(self._reconcile))

    def _on_change(self, key: Key, _old: _Endpoints | None, new: _Endpoints | None) -> None:
        if new is None:
            self._slice_counts.pop(key, None)  # the garbage collector deletes the slices
        else:
            self._queue.add(key)

    async def _reconcile(self, key: Key) -> None:
        endpoints = self._endpoints.objects.get(key)
        if endpoints is None or endpoints.metadata.is_being_deleted:
            return
        slices = list(_slices(endpoints))
        for body in slices:
            with suppress(NotFound):  # of the namespace
                await self._write(body)
        await self._delete(key, range(len(slices), self._slice_counts.get(key, 0)))
        self._slice_counts[key] = len(slices)

    async def _write(self, body: Json) -> None:
        metadata = body["metadata"]
        try:
            await self._cluster.create(ENDPOINT_SLICES, body)
        except AlreadyExists:
            content = {name: body[name] for name in ("endpoints", "ports")}
            change = {"metadata": {"ownerReferences": metadata["ownerReferences"]}, **content}
            await self._cluster.patch(ENDPOINT_SLICES, Key(metadata["namespace"], metadata["name"]), change)

    async def _delete(self, key: Key, numbers: Sequence[int]) -> None:
        for number in numbers:
            with suppress(NotFound):
                await self._cluster.delete(ENDPOINT_SLICES, Key(key.namespace, _name(key, number)))


def _slices(endpoints: _Endpoints) -> Iterator[Json]:
    """The slices of an Endpoints object. Endpoints without addresses have one empty slice."""
    metadata = endpoints.metadata
    owner = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for number, subset in enumerate(endpoints.subsets or ({},)):
        yield {
            "apiVersion": ENDPOINT_SLICES.api_version,
            "kind": ENDPOINT_SLICES.kind,
            "metadata": {
                "name": _name(metadata.key, number),
                "namespace": metadata.namespace,
                "labels": {SERVICE_NAME_LABEL: metadata.name, MANAGED_BY_LABEL: MIRRORING_CONTROLLER},
                "ownerReferences": [owner],
            },
            "addressType": "IPv4",
            "endpoints": [*_addresses(subset, "addresses"), *_addresses(subset, "notReadyAddresses")],
            "ports": [{"name": "", "protocol": "TCP", **port} for port in subset.get("ports") or ()],
        }


def _addresses(subset: Mapping[str, Any], field: str) -> Iterator[Json]:
    is_ready = field == "addresses"
    for address in subset.get(field) or ():
        details = {name: address[name] for name in ("nodeName", "targetRef", "hostname") if address.get(name)}
        conditions = {"ready": is_ready, "serving": is_ready, "terminating": False}
        yield {"addresses": [address["ip"]], "conditions": conditions, **details}


def _name(key: Key, number: int) -> str:
    return f"{key.name}-{number}"
