"""The controller of Endpoints: the addresses at which the pods of each Service are reachable on this machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.informer.cache_reader import KeyIndex
from tarragon.client.port import Client
from tarragon.kube.core import ENDPOINTS, PODS, SERVICES, Pod, Service, ServicePort
from tarragon.kube.meta import Key, ObjectMeta, PartialObject
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue
from tarragon.localcluster.services.selector_index import LabelTerm, SelectorIndex, label_terms

LocalPort = Callable[[Key, int], int | None]
"""The local port that a Service's port was translated to; None if no pod refers to that port of the Service."""

HEADLESS_LABEL = "service.kubernetes.io/headless"

_LOCALHOST = "127.0.0.1"


class _Endpoints(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[dict[str, Any], ...] = ()


class EndpointsController:
    """Writes the Endpoints of Services. All pods share one IP address, so a Service has one: ready if any pod is."""

    def __init__(self, cluster: Client, local_port: LocalPort, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._local_port = local_port
        self._services = logged_cache(cluster, SERVICES, clock, jitter)
        self._pods = logged_cache(cluster, PODS, clock, jitter)
        self._endpoints = logged_cache(cluster, ENDPOINTS.with_model(_Endpoints), clock, jitter)
        self._selectors = SelectorIndex()
        self._pods_by_label = KeyIndex(
            self._pods, lambda pod: map(_label_key, label_terms(pod.metadata.namespace, pod.metadata.labels))
        )
        self._queue: ReconcileQueue[Key] = ReconcileQueue(clock)
        self._services.add_event_handler(self._on_service)
        self._pods.add_event_handler(self._on_pod)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        caches = (self._services, self._pods, self._endpoints)
        async with asyncio.TaskGroup() as tasks:
            for cache in caches:
                tasks.create_task(cache.run())
            for cache in caches:
                await cache.wait_for_sync()
            tasks.create_task(self._queue.run(self._reconcile))

    def _on_service(self, key: Key, _old: Service | None, new: Service | None) -> None:
        self._selectors.set(key, new.spec.selector if new is not None else {})
        self._queue.add(key)

    def _on_pod(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        before, after = _relevant_state(old), _relevant_state(new)
        if before == after:
            return
        for state in filter(None, (before, after)):
            for service in self._selectors.services_selecting(key.namespace, state[0]):
                self._queue.add(service)

    async def _reconcile(self, key: Key) -> None:
        service = self._services.objects.get(key)
        if service is None:
            await self._delete(key)
        elif service.spec.selector and not service.metadata.is_being_deleted:
            await self._write(key, self._subsets(service))

    def _subsets(self, service: Service) -> list[dict[str, Any]]:
        pods = [pod for pod in self._selected(service) if _is_reachable(pod)]
        if not pods:
            return []
        ready = [pod for pod in pods if _is_ready(pod)]
        first = (ready or pods)[0]
        ports = [self._port(service.metadata.key, port, first) for port in service.spec.ports]
        return [{"addresses" if ready else "notReadyAddresses": [_address(first)], "ports": ports}]

    def _selected(self, service: Service) -> list[Pod]:
        """The pods that a Service selects. The rarest of its labels is looked up first, so few pods are compared."""
        selector = service.spec.selector
        rarest = min(map(_label_key, label_terms(service.metadata.namespace, selector)), key=self._pods_by_label.count)
        pods = (self._pods.objects[key] for key in sorted(self._pods_by_label.keys(rarest)))
        return [pod for pod in pods if selector.items() <= pod.metadata.labels.items()]

    def _port(self, service: Key, port: ServicePort, pod: Pod) -> dict[str, Any]:
        local = self._local_port(service, port.port) or _target(port, pod)
        return {"port": local, "protocol": "TCP", **({"name": port.name} if port.name else {})}

    async def _write(self, key: Key, subsets: Sequence[dict[str, Any]]) -> None:
        existing = self._endpoints.objects.get(key)
        if existing is not None and list(existing.subsets) == list(subsets):
            return
        if existing is None:
            metadata = {"name": key.name, "namespace": key.namespace, "labels": self._labels(key)}
            body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
            with suppress(NotFound):  # of the namespace
                await self._create(key, body)
            return
        await self._cluster.patch(ENDPOINTS, key, {"subsets": list(subsets)})

    def _labels(self, key: Key) -> dict[str, str]:
        """The label of headless Services, by which proxies ignore their Endpoints."""
        service = self._services.objects.get(key)
        return {HEADLESS_LABEL: ""} if service is not None and service.spec.is_headless else {}

    async def _create(self, key: Key, body: dict[str, Any]) -> None:
        try:
            await self._cluster.create(ENDPOINTS, body)
        except AlreadyExists:
            await self._cluster.patch(ENDPOINTS, key, {"subsets": body["subsets"]})

    async def _delete(self, key: Key) -> None:
        if key in self._endpoints.objects:
            with suppress(NotFound):
                await self._cluster.delete(ENDPOINTS, key)


def _relevant_state(pod: Pod | None) -> tuple[dict[str, str], bool, bool] | None:
    """The part of a pod that matters for Endpoints; most changes of a pod leave it equal."""
    return (pod.metadata.labels, _is_reachable(pod), _is_ready(pod)) if pod is not None else None


def _is_reachable(pod: Pod) -> bool:
    return bool(pod.status.pod_ip) and not pod.is_finished and not pod.metadata.is_being_deleted


def _is_ready(pod: Pod) -> bool:
    ready = pod.condition("Ready")
    return ready is not None and ready.status == "True"


def _label_key(term: LabelTerm) -> str:
    return "/".join(term)


def _address(pod: Pod) -> dict[str, Any]:
    target = {
        "kind": "Pod",
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "uid": pod.metadata.uid,
    }
    return {"ip": _LOCALHOST, "nodeName": pod.spec.node_name, "targetRef": target}


def _target(port: ServicePort, pod: Pod) -> int:
    """The target port of a Service in a pod. It is the right port when no translated address exists."""
    if isinstance(port.target_port, int):
        return port.target_port or port.port
    port_numbers = {each.name: each.container_port for container in pod.spec.containers for each in container.ports}
    return port_numbers.get(port.target_port or "", port.port)
