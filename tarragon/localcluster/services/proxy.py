"""Services really answer: their addresses are listened on in this process, and lead to a ready pod's port.

Only while a pod is ready, and not where it answers there itself: a program that listens on all addresses of the machine
has those of services too, and must find its port free when it starts.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tarragon.base.clock import Clock
from tarragon.client.port import Cluster, Selection
from tarragon.kube.core import ENDPOINTS, SERVICES
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import Key, ObjectMeta, Struct
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.events import Recorder
from tarragon.localcluster.controllers.workqueue import Worklist
from tarragon.localcluster.services.endpoints import HEADLESS
from tarragon.localcluster.services.forwarding import Door, Place, is_answered

_HERE = "127.0.0.1"
_RETRY_SECONDS = 1.0


class _Port(Struct, frozen=True):
    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0


class _Spec(Struct, frozen=True):
    selector: dict[str, str] = {}
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: list[_Port] = []


class _Service(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()

    @property
    def has_address(self) -> bool:
        return self.spec.cluster_ip not in {"", "None"} and not self.metadata.is_ending


class _Endpoints(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[dict[str, Any], ...] = ()


class ServiceProxy:
    """Services without an address, of which jobs have thousands, are not even asked for."""

    def __init__(self, cluster: Cluster, clock: Clock, jitter: random.Random) -> None:
        with_address = Selection(fields="spec.clusterIP!=None")
        self._services = logged_cache(cluster, SERVICES.reading(_Service), clock, jitter, with_address)
        of_these = Selection(labels=f"!{HEADLESS}")
        self._endpoints = logged_cache(cluster, ENDPOINTS.reading(_Endpoints), clock, jitter, of_these)
        self._worklist: Worklist[Key] = Worklist(clock, jitter)
        self._recorder = Recorder(cluster, clock, "service-proxy")
        self._doors: dict[Key, dict[Place, Door]] = {}
        self._told: set[tuple[str, Place]] = set()
        self._services.subscribe(self._follow_service)
        self._endpoints.subscribe(lambda key, _old, _new: self._add(key))

    async def run(self) -> None:
        """For ever, until cancelled. Call it once."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for cache in (self._services, self._endpoints):
                    tasks.create_task(cache.run())
                for cache in (self._services, self._endpoints):
                    await cache.synced()
                tasks.create_task(self._worklist.run(self._look))
        finally:
            doors = [door for each in self._doors.values() for door in each.values()]
            await asyncio.gather(*(door.close() for door in doors))

    def _follow_service(self, key: Key, old: _Service | None, new: _Service | None) -> None:
        if any(each is not None and each.has_address for each in (old, new)):
            self._worklist.add(key)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._told = {mark for mark in self._told if mark[0] != old.metadata.uid}

    def _add(self, key: Key) -> None:
        service = self._services.objects.get(key)
        if key in self._doors or (service is not None and service.has_address):
            self._worklist.add(key)

    async def _look(self, key: Key) -> float | None:
        service = self._services.objects.get(key)
        wanted = dict(self._wanted(service)) if service is not None and service.has_address else {}
        doors = self._doors.setdefault(key, {})
        for place in doors.keys() - wanted.keys():
            await doors.pop(place).close()
        troubled = False
        for place in wanted.keys() - doors.keys():
            assert service is not None  # noqa: S101 - else nothing is wanted
            troubled |= not await self._open(service, place, wanted[place])
        if not doors:
            del self._doors[key]
        return _RETRY_SECONDS if troubled else None

    def _wanted(self, service: _Service) -> Iterator[tuple[Place, _Port]]:
        for port in service.spec.ports:
            if port.protocol == "TCP" and self._backends(service.metadata.key, port):
                yield Place(service.spec.cluster_ip, port.port), port
                if port.node_port:
                    yield Place(_HERE, port.node_port), port
                yield from ((place, port) for place in self._named(service, port))

    def _named(self, service: _Service, port: _Port) -> list[Place]:
        """Where its name leads those whose manifests have it, while its own program listens where its manifest says."""
        if not service.spec.selector or not isinstance(port.target_port, int):
            return []
        places = self._backends(service.metadata.key, port)
        return [place for place in places if place.port != port.target_port]

    def _backends(self, key: Key, port: _Port) -> Sequence[Place]:
        """Where a ready pod is said to listen, then where its manifest says so: programs do the one or the other."""
        endpoints = self._endpoints.objects.get(key)
        found: list[Place] = []
        for subset in endpoints.subsets if endpoints is not None else ():
            numbers = [each["port"] for each in subset.get("ports") or () if (each.get("name") or "") == port.name]
            targets = [port.target_port] if isinstance(port.target_port, int) and port.target_port else []
            hosts = [address["ip"] for address in subset.get("addresses") or ()]
            found += [Place(host, number) for number in (*numbers, *targets) for host in hosts if numbers]
        return list(dict.fromkeys(found))

    async def _open(self, service: _Service, place: Place, port: _Port) -> bool:
        key = service.metadata.key

        def behind() -> Sequence[Place]:
            # The port may have got another name or target since the door was opened.
            now = dict(self._wanted(self._services.objects.get(key, service))).get(place, port)
            return [each for each in self._backends(key, now) if each != place]

        is_its_own = any(each.port == place.port for each in self._backends(key, port))
        if is_its_own and not await is_answered(behind()):
            # A program that has just started may want the port. Where it has taken it, all is well.
            return await is_answered([place])
        try:
            door = await Door.open(place, behind)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and is_its_own:
                return True  # the pod itself answers on all addresses
            await self._complain(service, place, error)
            return False
        self._doors[key][place] = door
        return True

    async def _complain(self, service: _Service, place: Place, error: OSError) -> None:
        """Once for each address and port."""
        mark = (service.metadata.uid, place)
        if mark in self._told:
            return
        self._told.add(mark)
        why = _REASONS.get(error.errno or 0, f"{error.strerror or error}")
        about = ObjectReference(api_version="v1", kind="Service", key=service.metadata.key, uid=service.metadata.uid)
        message = f"nobody can listen on {place}: {why}. Names of this service in manifests work all the same"
        await self._recorder.tell(Event(about=about, type="Warning", reason="AddressNotServed", message=message))


_REASONS: Mapping[int, str] = {
    errno.EACCES: "ports below 1024 are root's here; give the service a greater port and leave its targetPort",
    errno.EADDRINUSE: "another program has the port",
    errno.EADDRNOTAVAIL: "this system has no loopback address but 127.0.0.1; reach the pods at their own ports there",
}
