"""Keeps mounted ConfigMaps, Secrets and downward API files of pods up to date with the API.

ConfigMaps and Secrets are polled every POLL_SECONDS by their resource version, not watched, so that a node needs no
permission to list secrets. All volumes of a pod are refreshed as soon as the watch delivers its new labels or
annotations, as a kubelet does, so that an eviction notice and new hosts reach the program in time. The objects that a
pod mounts are determined once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from tarragon.base.clock import Clock, with_timeout
from tarragon.client.errors import ApiError, NotFound
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS, SECRETS, MinimalMeta
from tarragon.kube.meta import Key, PartialObject, Resource
from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.volumes import sources
from tarragon.localcluster.kubelet.volumes.tokens import ROOT_BUNDLE

POLL_SECONDS = 20.0

Refresh = Callable[[Pod], Awaitable[None]]
"""Updates the files of a pod's volumes. Raises what a container's start may raise."""

_log = structlog.get_logger()


class _Slim(PartialObject, frozen=True):
    metadata: MinimalMeta = MinimalMeta()


@dataclass(frozen=True, slots=True, order=True)
class _MountedObject:
    plural: str
    key: Key


@dataclass(frozen=True, slots=True)
class _Mounts:
    """The objects that a pod mounts, and whether its volumes show its own labels or annotations."""

    objects: frozenset[_MountedObject]
    has_metadata: bool


class VolumeRefresher:
    def __init__(self, cluster: Client, clock: Clock, refresh: Refresh) -> None:
        self._cluster = cluster
        self._clock = clock
        self._refresh = refresh
        self._mounts_of: dict[str, _Mounts] = {}
        self._versions: dict[_MountedObject, str] = {}
        self._seen: set[str] = set()
        self._relabelled: set[str] = set()
        """The pods whose labels or annotations have changed since their last refresh."""
        self._metadata_changed = asyncio.Event()

    def on_pod_change(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        """Handle a change of a pod; to be subscribed to the pods' cache."""
        if old is None or new is None:
            return
        before, after = old.metadata, new.metadata
        if before.labels != after.labels or before.annotations != after.annotations:
            self._relabelled.add(new.metadata.uid)
            self._metadata_changed.set()

    async def run(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """Refresh the volumes of the current `pods` until cancelled."""
        while True:
            due = self._clock.monotonic() + POLL_SECONDS
            while (left := due - self._clock.monotonic()) > 0:
                with suppress(TimeoutError):
                    await with_timeout(self._clock, left, self._metadata_changed.wait())
                    self._metadata_changed.clear()
                    await self._refresh_changed(self._with_volumes(pods()), set())
            await self.poll(pods())

    async def poll(self, pods: Iterable[Pod]) -> None:
        """Poll once. Objects seen for the first time count as changed, as their last written version is unknown."""
        found = self._with_volumes(pods)
        changed = await self._changed_objects({each for mounts in self._mounts_of.values() for each in mounts.objects})
        await self._refresh_changed(found, changed)

    def _with_volumes(self, pods: Iterable[Pod]) -> Mapping[str, Pod]:
        """The pods with volumes, by uid."""
        by_uid = {pod.metadata.uid: pod for pod in pods if pod.spec.volumes}
        self._mounts_of = {uid: self._mounts_of.get(uid) or _mounts(pod) for uid, pod in by_uid.items()}
        return by_uid

    async def _refresh_changed(self, pods: Mapping[str, Pod], changed: AbstractSet[_MountedObject]) -> None:
        relabelled, self._relabelled = self._relabelled, set()
        for uid, mounts in self._mounts_of.items():
            # The metadata of a new pod may have changed since its volumes were written.
            may_be_old = mounts.has_metadata and uid not in self._seen
            if mounts.objects & changed or uid in relabelled or may_be_old:
                await self._refresh_pod(pods[uid])
        self._seen = set(self._mounts_of)

    async def _changed_objects(self, objects: Iterable[_MountedObject]) -> set[_MountedObject]:
        before, self._versions = self._versions, await self._read(objects)
        return {each for each, now in self._versions.items() if _is_changed(each, before.get(each, ""), now)}

    async def _refresh_pod(self, pod: Pod) -> None:
        try:
            await self._refresh(pod)
        except (ApiError, CannotStart, OSError) as error:
            _log.warning("volumes of a pod could not be refreshed", pod=str(pod.metadata.key), error=str(error))

    async def _read(self, objects: Iterable[_MountedObject]) -> dict[_MountedObject, str]:
        """The version of each object: empty if it does not exist, the last one if it cannot be read now."""
        versions: dict[_MountedObject, str] = {}
        for mounted in sorted(objects):
            try:
                versions[mounted] = await self._version(mounted)
            except ApiError:
                versions[mounted] = self._versions.get(mounted, "")
        return versions

    async def _version(self, mounted: _MountedObject) -> str:
        resource: Resource[Any] = SECRETS if mounted.plural == SECRETS.plural else CONFIG_MAPS
        try:
            stored = await self._cluster.get(resource.with_model(_Slim), mounted.key)
        except NotFound:
            return ""
        return stored.metadata.resource_version


def _mounted(pod: Pod) -> Iterator[_MountedObject]:
    namespace = pod.metadata.namespace
    for name in sources.mounted_config_maps(pod):
        yield _MountedObject(CONFIG_MAPS.plural, Key(namespace, name))
    for name in sources.mounted_secrets(pod):
        yield _MountedObject(SECRETS.plural, Key(namespace, name))


def _is_changed(mounted: _MountedObject, before: str, now: str) -> bool:
    """Whether the version changed. The first sight of the root certificates is no change: pods start with them."""
    return now != before and (bool(before) or mounted.key.name != ROOT_BUNDLE)


def _mounts(pod: Pod) -> _Mounts:
    parts = [part for volume in pod.spec.volumes for part in (volume.get("projected") or {}).get("sources") or []]
    items = [
        item for each in [*pod.spec.volumes, *parts] for item in (each.get("downwardAPI") or {}).get("items") or []
    ]
    paths = [str((item.get("fieldRef") or {}).get("fieldPath") or "") for item in items]
    return _Mounts(frozenset(_mounted(pod)), any(path.startswith(_CHANGING) for path in paths))


_CHANGING = ("metadata.labels", "metadata.annotations")
