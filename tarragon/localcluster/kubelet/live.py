"""Keeps what pods have mounted as it is in the API: config maps, secrets, and what is said of the pods themselves.

It looks again every few seconds, as kubelets do, and asks for nothing but the version of each object: nothing is
watched, so that a node needs no right to list secrets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog

from tarragon.base.clock import Clock
from tarragon.cluster.errors import ApiError, NotFound
from tarragon.cluster.port import Cluster
from tarragon.kube.core import CONFIG_MAPS, SECRETS, SlimMeta
from tarragon.kube.meta import Key, Resource, Struct
from tarragon.localcluster.kubelet import sources
from tarragon.localcluster.kubelet.errors import CannotStart
from tarragon.localcluster.kubelet.spec import Pod

LOOK_SECONDS = 20.0

Refresh = Callable[[Pod], Awaitable[None]]
"""Write anew what has changed of a pod's volumes. May raise what a start may raise."""

_log = structlog.get_logger()


class _Slim(Struct, frozen=True):
    metadata: SlimMeta = SlimMeta()


@dataclass(frozen=True, slots=True, order=True)
class _Thing:
    plural: str
    key: Key


@dataclass(slots=True)
class _Known:
    """Versions of things, and of what pods say of themselves."""

    things: dict[_Thing, str] = field(default_factory=dict)
    pods: dict[str, str] = field(default_factory=dict)


class VolumeKeeper:
    def __init__(self, cluster: Cluster, clock: Clock, refresh: Refresh) -> None:
        self._cluster = cluster
        self._clock = clock
        self._refresh = refresh
        self._known = _Known()

    async def run(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """For ever, for the pods that there are each time."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.look([pod for pod in pods() if pod.spec.volumes])

    async def look(self, pods: Iterable[Pod]) -> None:
        """Once. What is seen for the first time counts as changed: nobody knows what came before."""
        uses = {pod.metadata.uid: (pod, set(_mounted(pod))) for pod in pods}
        now = _Known(
            things=await self._versions({thing for _, things in uses.values() for thing in things}),
            pods={uid: _said(pod) for uid, (pod, _) in uses.items()},
        )
        news = {thing for thing, version in now.things.items() if self._known.things.get(thing) != version}
        for uid, (pod, things) in uses.items():
            if things & news or (now.pods[uid] and now.pods[uid] != self._known.pods.get(uid)):
                await self._keep(pod)
        self._known = now

    async def _keep(self, pod: Pod) -> None:
        try:
            await self._refresh(pod)
        except (ApiError, CannotStart, OSError) as error:
            _log.warning("volumes of a pod could not be kept up to date", pod=str(pod.metadata.key), error=str(error))

    async def _versions(self, things: Iterable[_Thing]) -> dict[_Thing, str]:
        """Empty for what is not there; what cannot be read now is taken for unchanged."""
        found: dict[_Thing, str] = {}
        for thing in sorted(things):
            try:
                found[thing] = await self._version(thing)
            except ApiError:
                found[thing] = self._known.things.get(thing, "")
        return found

    async def _version(self, thing: _Thing) -> str:
        resource: Resource[Any] = SECRETS if thing.plural == SECRETS.plural else CONFIG_MAPS
        try:
            held = await self._cluster.get(resource.reading(_Slim), thing.key)
        except NotFound:
            return ""
        return held.metadata.resource_version


def _mounted(pod: Pod) -> Iterator[_Thing]:
    namespace = pod.metadata.namespace
    for name in sources.mounted_config_maps(pod):
        yield _Thing(CONFIG_MAPS.plural, Key(namespace, name))
    for name in sources.mounted_secrets(pod):
        yield _Thing(SECRETS.plural, Key(namespace, name))


def _said(pod: Pod) -> str:
    """What may change of a pod that its volumes tell; empty where they tell nothing of it."""
    parts = [part for volume in pod.spec.volumes for part in (volume.get("projected") or {}).get("sources") or []]
    if any("downwardAPI" in each for each in [*pod.spec.volumes, *parts]):
        return f"{sorted(pod.metadata.labels.items())}{sorted(pod.metadata.annotations.items())}"
    return ""
