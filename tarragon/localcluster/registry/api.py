"""The embedded Kubernetes API as one class, `Api`, which in-process clients and the HTTP server both call.

Reads return immediately, from committed state only. Writes return when they are durable. Every failure raises an
error of `tarragon.client.errors` whose `status` is the complete metav1.Status that a kube-apiserver would send.
All methods must be called on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tarragon.base.clock import Clock
from tarragon.client.port import PLAIN_DELETE, WHOLE_LOG, DeleteOptions, LogOptions
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.admission.quota import Quotas
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.containers import container_asked
from tarragon.localcluster.api.requests import (
    Deleted,
    Json,
    ListOptions,
    Page,
    Patch,
    PodLogs,
    Target,
    WatchOptions,
    WriteOptions,
    Written,
)
from tarragon.localcluster.kinds.registry import Registry
from tarragon.localcluster.kubelet.streaming.streaming import Door, Doors
from tarragon.localcluster.registry.create import Creates
from tarragon.localcluster.registry.custom_kinds import CustomKinds
from tarragon.localcluster.registry.delete import Deletes
from tarragon.localcluster.registry.pod_subresources import PodActions
from tarragon.localcluster.registry.reads import Reads
from tarragon.localcluster.registry.scale import scale_of
from tarragon.localcluster.registry.update import Changes
from tarragon.localcluster.registry.upkeep import Upkeep
from tarragon.localcluster.registry.writes import Writes
from tarragon.localcluster.schema.field_errors import required
from tarragon.localcluster.storage.history import ObjectKey, Shelf
from tarragon.localcluster.storage.objects import in_version
from tarragon.localcluster.storage.selection import index
from tarragon.localcluster.storage.store import DEFAULT_WINDOW, Store, Window
from tarragon.localcluster.storage.watching import Watch

__all__ = ["Api", "Watch"]

ALL_OBJECTS = ListOptions()
FROM_THE_BEGINNING = WatchOptions()
PLAIN_WRITE = WriteOptions()

BINDINGS = "bindings"
"""A kind that is only created; the server stores a binding as its pod's `spec.nodeName`."""

_MAINTENANCE_SECONDS = 60
_DELETE_BATCH_SIZE = 500


class Api:
    """The embedded API: open it with `await Api.open(path, clock)`, and end it with `await close()`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.registry = Registry()
        self.pod_logs: PodLogs | None = None
        self.pod_doors: Doors | None = None
        self._store = store
        self._clock = clock
        self._writes = Writes(store, Quotas(store, self.registry), clock)
        self._reads = Reads(store)
        custom_kinds = CustomKinds(self._writes, self.registry)
        self._creates = Creates(self._writes, custom_kinds)
        self._deletes = Deletes(self._writes, custom_kinds)
        self._changes = Changes(self._writes, self._creates, self._deletes, custom_kinds)
        self._pod_actions = PodActions(self._writes, self._deletes)
        self._upkeep = Upkeep(self._writes, self._creates, self.registry)

    @classmethod
    async def open(cls, path: Path, clock: Clock, window: Window = DEFAULT_WINDOW) -> Api:
        """Open the store in the file `path`, creating it if necessary, and return the API on it.

        Raises a TarragonError that names the remedy when the store is corrupt, newer than this program, on a network
        file system or open in another process.
        """
        store = await Store.open(path, clock, index, window)
        api = cls(store, clock)
        try:
            await api._upkeep.found()
        except BaseException:
            await store.close()
            raise
        return api

    def target(self, path: tuple[str, str, str], namespace: str = "", name: str = "", subresource: str = "") -> Target:
        """The target for (group, version, plural). Raises NotFound when nothing is served there."""
        served = self.registry.find(*path)
        if served is None or (subresource and subresource not in served.subresources):
            raise errors.no_such_resource()
        return Target(served, namespace, name, subresource)

    def admit_pods(self, admit: Callable[[Json], None]) -> None:
        """Have `admit` see each new pod from now on. It may change the pod."""
        self._creates.admit_pod = admit

    def shelf(self, full_name: str) -> Shelf:
        """The committed objects of a kind, for callers that look at them on every request."""
        return self._store.shelf(full_name)

    def get(self, target: Target) -> bytes:
        """The encoded object in the target's version; with subresource `scale` an autoscaling/v1 Scale."""
        body = in_version(self._reads.get(target).body, target.served)
        match target.subresource:
            case "" | "status":
                return body
            case "scale":
                return encode(scale_of(target.served, decode(body, dict)))
            case _:
                raise errors.method_not_allowed()

    def list(self, target: Target, options: ListOptions = ALL_OBJECTS) -> Page:
        """Raises BadRequest for selectors it can't read or fields it does not index, Expired for stale tokens."""
        return self._reads.list(target, options)

    def watch(self, target: Target, options: WatchOptions = FROM_THE_BEGINNING) -> Watch:
        """Raises Expired immediately when the history starts later, and BadRequest for selectors as `list` does.

        A `name` in the target is a field selector on metadata.name.
        """
        return self._reads.watch(target, options)

    async def create(self, target: Target, body: Json, options: WriteOptions = PLAIN_WRITE) -> Written:
        """POST to a collection, or to the subresource `binding` or `eviction` of a pod."""
        match target.subresource:
            case "" if target.served.full_name == BINDINGS:
                return await self._pod_actions.bind(self._bound_pod_target(target, body), body, options)
            case "":
                return await self._creates.create(target, body, options)
            case "binding":
                return await self._pod_actions.bind(target, body, options)
            case "eviction":
                return await self._pod_actions.evict(target, body, options)
            case _:
                raise errors.method_not_allowed()

    async def update(self, target: Target, body: Json, options: WriteOptions = PLAIN_WRITE) -> Written:
        """PUT of an object, its `status`, its `scale` or a namespace's `finalize`."""
        match target.subresource:
            case "" | "status" | "finalize":
                return await self._changes.update(target, body, options)
            case "scale":
                return await self._changes.rescale(target, body, options)
            case _:
                raise errors.method_not_allowed()

    async def patch(self, target: Target, patch: Patch, options: WriteOptions = PLAIN_WRITE) -> Written:
        """PATCH of anything that `update` accepts. An apply patch creates a missing object."""
        match target.subresource:
            case "" | "status" | "finalize":
                return await self._changes.patch(target, patch, options)
            case "scale":
                return await self._changes.rescale(target, patch, options)
            case _:
                raise errors.method_not_allowed()

    async def delete(
        self, target: Target, options: DeleteOptions = PLAIN_DELETE, writing: WriteOptions = PLAIN_WRITE
    ) -> Deleted:
        """DELETE of one object."""
        if target.subresource:
            raise errors.method_not_allowed()
        return await self._deletes.delete(target, options, writing)

    async def delete_collection(
        self,
        target: Target,
        selection: ListOptions = ALL_OBJECTS,
        options: DeleteOptions = PLAIN_DELETE,
        writing: WriteOptions = PLAIN_WRITE,
    ) -> Page:
        """DELETE of all selected objects. Returns them as they were before the delete."""
        page = self._reads.list(target, selection)
        keys = [_object_key(item) for item in page.items]
        for start in range(0, len(keys), _DELETE_BATCH_SIZE):
            await self._deletes.delete_many(target.served, keys[start : start + _DELETE_BATCH_SIZE], options, writing)
        return page

    def _bound_pod_target(self, target: Target, body: Json) -> Target:
        """The pod that a binding names. Raises Invalid if it names none."""
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not name:
            raise errors.invalid(target.served, "", [required("metadata.name", "name or generateName is required")])
        return self.target(("", "v1", "pods"), target.namespace, name, "binding")

    def object_counts(self) -> dict[str, int]:
        """The number of stored objects of each kind."""
        kinds = dict.fromkeys(kind.full_name for kind in self.registry if kind.is_stored and kind.view is None)
        return {kind: len(self._store.shelf(kind).objects) for kind in kinds}

    def pod_log(self, target: Target, options: LogOptions = WHOLE_LOG) -> AsyncIterator[bytes]:
        """GET of pods/log. The log of an unscheduled pod is empty.

        Raises NotFound for a missing pod, BadRequest for an unknown container, and Unavailable if this process runs
        no kubelet.
        """
        pod = decode(self._reads.get(target).body, dict)
        container_asked(pod, options.container)
        if not pod["spec"].get("nodeName"):
            return _empty_log()
        if self.pod_logs is None:
            raise errors.failure(503, "ServiceUnavailable", "no kubelet runs in this server: it keeps no logs")
        return self.pod_logs.read(pod, options)

    def pod(self, target: Target) -> Json:
        """The pod whose subresource is requested."""
        return decode(self._reads.get(target).body, dict)

    def pod_door(self, target: Target) -> tuple[Json, Door]:
        """The pod, and the `Door` for its streams. Raises NotFound, BadRequest for an unscheduled pod, Unavailable."""
        pod = self.pod(target)
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {target.name} does not have a host assigned")
        if self.pod_doors is None:
            raise errors.failure(503, "ServiceUnavailable", "no kubelet runs in this server: it runs no containers")
        return pod, self.pod_doors(pod)

    async def maintain(self) -> None:
        """Compact the history, expire old events and send bookmarks periodically, until cancelled."""
        while True:
            await self._clock.sleep(_MAINTENANCE_SECONDS)
            await self.tidy()

    async def tidy(self) -> None:
        """Do one pass of `maintain`."""
        self._reads.forget_snapshots()
        await self._upkeep.tidy()

    async def close(self) -> None:
        """Commit queued writes, end all watches and close the store."""
        await self._store.close()


async def _empty_log() -> AsyncIterator[bytes]:
    chunks: tuple[bytes, ...] = ()
    for chunk in chunks:
        yield chunk


def _object_key(body: bytes) -> ObjectKey:
    metadata = decode(body, dict)["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])
