"""Keeps what pods have mounted as it is in the API: config maps, secrets, and what is said of the pods themselves.

It looks again every few seconds, as kubelets do, and asks for nothing but the version of each object: nothing of that
is watched, so that a node needs no right to list secrets. What is said of a pod itself a kubelet hears at once, and so
does who has it mounted: a note that a place is taken must not come when it is. What a pod mounts is worked out once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from tarragon.base.clock import Clock, within
from tarragon.client.errors import ApiError, NotFound
from tarragon.client.port import Cluster
from tarragon.kube.core import CONFIG_MAPS, SECRETS, SlimMeta
from tarragon.kube.meta import Key, Resource, Struct
from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.volumes import sources
from tarragon.localcluster.kubelet.volumes.tokens import ROOT_BUNDLE

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


@dataclass(frozen=True, slots=True)
class _Use:
    """What a pod has mounted, and whether its volumes tell of itself, too."""

    things: frozenset[_Thing]
    tells_of_itself: bool


class VolumeKeeper:
    def __init__(self, cluster: Cluster, clock: Clock, refresh: Refresh) -> None:
        self._cluster = cluster
        self._clock = clock
        self._refresh = refresh
        self._uses: dict[str, _Use] = {}
        self._versions: dict[_Thing, str] = {}
        self._said: dict[str, str] = {}
        self._is_news = asyncio.Event()

    def changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        """A handler for who follows the pods."""
        if old is None or new is None:
            return
        before, after = old.metadata, new.metadata
        if before.labels != after.labels or before.annotations != after.annotations:
            self._is_news.set()

    async def run(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """For ever, for the pods that there are each time."""
        while True:
            due = self._clock.monotonic() + LOOK_SECONDS
            while (left := due - self._clock.monotonic()) > 0:
                with suppress(TimeoutError):
                    await within(self._clock, left, self._is_news.wait())
                    self._is_news.clear()
                    await self._keep_all(self._found(pods()), set())
            await self.look(pods())

    async def look(self, pods: Iterable[Pod]) -> None:
        """Once. What is seen for the first time counts as changed: nobody knows what came before."""
        found = self._found(pods)
        news = await self._changed_things({thing for use in self._uses.values() for thing in use.things})
        await self._keep_all(found, news)

    def _found(self, pods: Iterable[Pod]) -> Mapping[str, Pod]:
        """Those that have something mounted, by uid."""
        found = {pod.metadata.uid: pod for pod in pods if pod.spec.volumes}
        self._uses = {uid: self._uses.get(uid) or _use(pod) for uid, pod in found.items()}
        return found

    async def _keep_all(self, found: Mapping[str, Pod], news: AbstractSet[_Thing]) -> None:
        said = {uid: _said(found[uid]) for uid, use in self._uses.items() if use.tells_of_itself}
        for uid, use in self._uses.items():
            if use.things & news or (use.tells_of_itself and said[uid] != self._said.get(uid)):
                await self._keep(found[uid])
        self._said = said

    async def _changed_things(self, things: Iterable[_Thing]) -> set[_Thing]:
        before, self._versions = self._versions, await self._read(things)
        return {thing for thing, now in self._versions.items() if _is_news(thing, before.get(thing, ""), now)}

    async def _keep(self, pod: Pod) -> None:
        try:
            await self._refresh(pod)
        except (ApiError, CannotStart, OSError) as error:
            _log.warning("volumes of a pod could not be kept up to date", pod=str(pod.metadata.key), error=str(error))

    async def _read(self, things: Iterable[_Thing]) -> dict[_Thing, str]:
        """Empty for what is not there; what cannot be read now is taken for unchanged."""
        found: dict[_Thing, str] = {}
        for thing in sorted(things):
            try:
                found[thing] = await self._version(thing)
            except ApiError:
                found[thing] = self._versions.get(thing, "")
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


def _is_news(thing: _Thing, before: str, now: str) -> bool:
    """The root certificates are in every pod, and are known before their config map is: that is there is no news."""
    return now != before and (bool(before) or thing.key.name != ROOT_BUNDLE)


def _use(pod: Pod) -> _Use:
    parts = [part for volume in pod.spec.volumes for part in (volume.get("projected") or {}).get("sources") or []]
    told = [item for each in [*pod.spec.volumes, *parts] for item in (each.get("downwardAPI") or {}).get("items") or []]
    paths = [str((item.get("fieldRef") or {}).get("fieldPath") or "") for item in told]
    return _Use(frozenset(_mounted(pod)), any(path.startswith(_CHANGING) for path in paths))


_CHANGING = ("metadata.labels", "metadata.annotations")


def _said(pod: Pod) -> str:
    """What may change of a pod that its volumes tell."""
    return f"{sorted(pod.metadata.labels.items())}{sorted(pod.metadata.annotations.items())}"
