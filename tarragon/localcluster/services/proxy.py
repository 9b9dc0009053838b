"""The Service proxy, which listens on the addresses of Services and forwards connections to ready pods.

It listens only while a pod is ready, and not where the pod itself answers: a program that listens on all addresses of
the machine also listens on those of Services, and its port must be free when it starts.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tarragon.base.clock import Clock
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.port import Client, Selector
from tarragon.kube.core import ENDPOINTS, SERVICES
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import Key, ObjectMeta, PartialObject
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue
from tarragon.localcluster.services.endpoints import HEADLESS_LABEL
from tarragon.localcluster.services.forwarding import HostPort, TcpForwarder, accepts_connections

_LOCALHOST = "127.0.0.1"
_RETRY_SECONDS = 1.0


class _Port(PartialObject, frozen=True):
    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0


class _Spec(PartialObject, frozen=True):
    selector: dict[str, str] = {}
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: list[_Port] = []


class _Service(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()

    @property
    def has_address(self) -> bool:
        return self.spec.cluster_ip not in {"", "None"} and not self.metadata.is_being_deleted


class _Endpoints(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[dict[str, Any], ...] = ()


class ServiceProxy:
    """Listens for Services with a cluster IP. Headless Services, of which jobs have thousands, are not even watched."""

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        with_address = Selector(field_selector="spec.clusterIP!=None")
        self._services = logged_cache(cluster, SERVICES.with_model(_Service), clock, jitter, with_address)
        with_cluster_ip = Selector(label_selector=f"!{HEADLESS_LABEL}")
        self._endpoints = logged_cache(cluster, ENDPOINTS.with_model(_Endpoints), clock, jitter, with_cluster_ip)
        self._queue: ReconcileQueue[Key] = ReconcileQueue(clock)
        self._recorder = EventRecorder(cluster, clock, "service-proxy")
        self._listeners: dict[Key, dict[HostPort, TcpForwarder]] = {}
        self._reported: set[tuple[str, HostPort]] = set()
        self._services.add_event_handler(self._on_service)
        self._endpoints.add_event_handler(lambda key, _old, _new: self._enqueue(key))

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for cache in (self._services, self._endpoints):
                    tasks.create_task(cache.run())
                for cache in (self._services, self._endpoints):
                    await cache.wait_for_sync()
                tasks.create_task(self._queue.run(self._reconcile))
        finally:
            listeners = [listener for each in self._listeners.values() for listener in each.values()]
            await asyncio.gather(*(listener.close() for listener in listeners))

    def _on_service(self, key: Key, old: _Service | None, new: _Service | None) -> None:
        if any(each is not None and each.has_address for each in (old, new)):
            self._queue.add(key)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._reported = {report_key for report_key in self._reported if report_key[0] != old.metadata.uid}

    def _enqueue(self, key: Key) -> None:
        service = self._services.objects.get(key)
        if key in self._listeners or (service is not None and service.has_address):
            self._queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        service = self._services.objects.get(key)
        desired = dict(self._desired(service)) if service is not None and service.has_address else {}
        listeners = self._listeners.setdefault(key, {})
        for endpoint in listeners.keys() - desired.keys():
            await listeners.pop(endpoint).close()
        has_failed = False
        for endpoint in desired.keys() - listeners.keys():
            assert service is not None  # noqa: S101 - otherwise no address is desired
            has_failed |= not await self._listen(service, endpoint, desired[endpoint])
        if not listeners:
            del self._listeners[key]
        return _RETRY_SECONDS if has_failed else None

    def _desired(self, service: _Service) -> Iterator[tuple[HostPort, _Port]]:
        for port in service.spec.ports:
            if port.protocol == "TCP" and self._backends(service.metadata.key, port):
                yield HostPort(service.spec.cluster_ip, port.port), port
                if port.node_port:
                    yield HostPort(_LOCALHOST, port.node_port), port
                yield from ((endpoint, port) for endpoint in self._translated(service, port))

    def _translated(self, service: _Service, port: _Port) -> list[HostPort]:
        """The translated addresses of a port: pods that refer to the Service connect there, not to its target port."""
        if not service.spec.selector or not isinstance(port.target_port, int):
            return []
        addresses = self._backends(service.metadata.key, port)
        return [endpoint for endpoint in addresses if endpoint.port != port.target_port]

    def _backends(self, key: Key, port: _Port) -> Sequence[HostPort]:
        """The addresses of ready pods: first the translated port, then the target port. Programs listen on either."""
        endpoints = self._endpoints.objects.get(key)
        found: list[HostPort] = []
        for subset in endpoints.subsets if endpoints is not None else ():
            numbers = [each["port"] for each in subset.get("ports") or () if (each.get("name") or "") == port.name]
            targets = [port.target_port] if isinstance(port.target_port, int) and port.target_port else []
            hosts = [address["ip"] for address in subset.get("addresses") or ()]
            found += [HostPort(host, number) for number in (*numbers, *targets) for host in hosts if numbers]
        return list(dict.fromkeys(found))

    async def _listen(self, service: _Service, endpoint: HostPort, port: _Port) -> bool:
        key = service.metadata.key

        def backends() -> Sequence[HostPort]:
            # The port may have a new name or target since the socket was opened.
            now = dict(self._desired(self._services.objects.get(key, service))).get(endpoint, port)
            return [each for each in self._backends(key, now) if each != endpoint]

        pod_has_port = any(each.port == endpoint.port for each in self._backends(key, port))
        if pod_has_port and not await accepts_connections(backends()):
            # A program that has just started may need the port; if it already listens there, nothing is to do.
            return await accepts_connections([endpoint])
        try:
            listener = await TcpForwarder.open(endpoint, backends)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and pod_has_port:
                return True  # the pod itself listens on all addresses
            await self._report(service, endpoint, error)
            return False
        self._listeners[key][endpoint] = listener
        return True

    async def _report(self, service: _Service, endpoint: HostPort, error: OSError) -> None:
        """Record an event, once for each Service, address and port."""
        report_key = (service.metadata.uid, endpoint)
        if report_key in self._reported:
            return
        self._reported.add(report_key)
        why = _REASONS.get(error.errno or 0, f"{error.strerror or error}")
        about = ObjectReference(api_version="v1", kind="Service", key=service.metadata.key, uid=service.metadata.uid)
        message = f"cannot listen on {endpoint}: {why}. The name of this service in manifests still works"
        await self._recorder.record(
            Event(involved_object=about, type="Warning", reason="AddressNotServed", message=message)
        )


_REASONS: Mapping[int, str] = {
    errno.EACCES: "only root may use ports below 1024; give the service a higher port and keep its targetPort",
    errno.EADDRINUSE: "another program uses the port",
    errno.EADDRNOTAVAIL: "this system has no loopback address except 127.0.0.1; use the ports of the pods there",
}
