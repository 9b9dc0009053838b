"""The embedded Kubernetes API as one class, `Api`, which in-process clients and the HTTP server both call.

Reads return immediately, from committed state only. Writes return when they are durable. Every failure raises an
error of `tarragon.client.errors` whose `status` is the complete metav1.Status that a kube-apiserver would send.
All methods must be called on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tarragon.base.clock import Clock
from tarragon.client.port import DEFAULT_DELETE, DEFAULT_LOG, DeleteOptions, LogOptions
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.admission.quota import Quotas
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.container_selection import requested_container
from tarragon.localcluster.api.requests import (
    DeleteResult,
    Json,
    ListOptions,
    ListPage,
    PatchBody,
    PodLogs,
    RequestTarget,
    WatchOptions,
    WriteOptions,
    WriteResult,
)
from tarragon.localcluster.kinds.registry import KindRegistry
from tarragon.localcluster.kubelet.streaming.pod_access import PodAccess, PodAccessLookup
from tarragon.localcluster.registry.create import Creator
from tarragon.localcluster.registry.custom_kinds import CustomKindController
from tarragon.localcluster.registry.delete import Deleter
from tarragon.localcluster.registry.maintenance import Maintenance
from tarragon.localcluster.registry.pod_subresources import PodSubresources
from tarragon.localcluster.registry.reads import Reader
from tarragon.localcluster.registry.scale import scale_of
from tarragon.localcluster.registry.update import Updater
from tarragon.localcluster.registry.writes import WriteTransaction
from tarragon.localcluster.schema.field_errors import required
from tarragon.localcluster.storage.encoding import encode_in_version
from tarragon.localcluster.storage.selectors import index_entry
from tarragon.localcluster.storage.store import DEFAULT_WINDOW, HistoryWindow, Store
from tarragon.localcluster.storage.watch import Watch
from tarragon.localcluster.storage.watch_cache import ObjectKey, WatchCache

__all__ = ["Api", "Watch"]

ALL_OBJECTS = ListOptions()
FROM_START = WatchOptions()
DEFAULT_WRITE = WriteOptions()

BINDINGS = "bindings"
"""A kind that is only created; the server stores a binding as its pod's `spec.nodeName`."""

_MAINTENANCE_SECONDS = 60
_DELETE_BATCH_SIZE = 500


class Api:
    """The embedded API: open it with `await Api.open(path, clock)`, and end it with `await close()`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.registry = KindRegistry()
        self.pod_logs: PodLogs | None = None
        self.stream_servers: PodAccessLookup | None = None
        self._store = store
        self._clock = clock
        self._writes = WriteTransaction(store, Quotas(store, self.registry), clock)
        self._reads = Reader(store)
        custom_kinds = CustomKindController(self._writes, self.registry)
        self._creates = Creator(self._writes, custom_kinds)
        self._deletes = Deleter(self._writes, custom_kinds)
        self._changes = Updater(self._writes, self._creates, self._deletes, custom_kinds)
        self._pod_actions = PodSubresources(self._writes, self._deletes)
        self._upkeep = Maintenance(self._writes, self._creates, self.registry)

    @classmethod
    async def open(cls, path: Path, clock: Clock, window: HistoryWindow = DEFAULT_WINDOW) -> Api:
        """Open the store in the file `path`, creating it if necessary, and return the API on it.

        Raises a TarragonError that names the remedy when the store is corrupt, newer than this program, on a network
        file system or open in another process.
        """
        store = await Store.open(path, clock, index_entry, window)
        api = cls(store, clock)
        try:
            await api._upkeep.create_bootstrap_objects()
        except BaseException:
            await store.close()
            raise
        return api

    def target(
        self, path: tuple[str, str, str], namespace: str = "", name: str = "", subresource: str = ""
    ) -> RequestTarget:
        """The target for (group, version, plural). Raises NotFound when nothing is served there."""
        served = self.registry.find(*path)
        if served is None or (subresource and subresource not in served.subresources):
            is_resize = served is not None and (served.full_name, subresource) == ("pods", "resize")
            raise errors.no_resize() if is_resize else errors.no_such_resource()
        return RequestTarget(served, namespace, name, subresource)

    def set_pod_admission(self, admit: Callable[[Json], None]) -> None:
        """Have `admit` see each new pod from now on. It may change the pod."""
        self._creates.admit_pod = admit

    def committed_objects(self, full_name: str) -> WatchCache:
        """The committed objects of a kind, for callers that look at them on every request."""
        return self._store.watch_cache(full_name)

    def get(self, target: RequestTarget) -> bytes:
        """The encoded object in the target's version; with subresource `scale` an autoscaling/v1 Scale."""
        body = encode_in_version(self._reads.get(target).body, target.served)
        match target.subresource:
            case "" | "status":
                return body
            case "scale":
                return encode(scale_of(target.served, decode(body, dict)))
            case _:
                raise errors.method_not_allowed()

    def list(self, target: RequestTarget, options: ListOptions = ALL_OBJECTS) -> ListPage:
        """Raises BadRequest for selectors it can't read or fields it does not index, Expired for stale tokens."""
        return self._reads.list(target, options)

    def watch(self, target: RequestTarget, options: WatchOptions = FROM_START) -> Watch:
        """Raises ResourceExpired at once when the history starts later, and BadRequest for selectors as `list` does.

        A `name` in the target is a field selector on metadata.name.
        """
        return self._reads.watch(target, options)

    async def create(self, target: RequestTarget, body: Json, options: WriteOptions = DEFAULT_WRITE) -> WriteResult:
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

    async def update(self, target: RequestTarget, body: Json, options: WriteOptions = DEFAULT_WRITE) -> WriteResult:
        """PUT of an object, its `status`, its `scale` or a namespace's `finalize`."""
        match target.subresource:
            case "" | "status" | "finalize":
                return await self._changes.update(target, body, options)
            case "scale":
                return await self._changes.rescale(target, body, options)
            case _:
                raise errors.method_not_allowed()

    async def patch(
        self, target: RequestTarget, patch: PatchBody, options: WriteOptions = DEFAULT_WRITE
    ) -> WriteResult:
        """PATCH of anything that `update` accepts. An apply patch creates a missing object."""
        match target.subresource:
            case "" | "status" | "finalize":
                return await self._changes.patch(target, patch, options)
            case "scale":
                return await self._changes.rescale(target, patch, options)
            case _:
                raise errors.method_not_allowed()

    async def delete(
        self, target: RequestTarget, options: DeleteOptions = DEFAULT_DELETE, writing: WriteOptions = DEFAULT_WRITE
    ) -> DeleteResult:
        """DELETE of one object."""
        if target.subresource:
            raise errors.method_not_allowed()
        return await self._deletes.delete(target, options, writing)

    async def delete_collection(
        self,
        target: RequestTarget,
        selection: ListOptions = ALL_OBJECTS,
        options: DeleteOptions = DEFAULT_DELETE,
        writing: WriteOptions = DEFAULT_WRITE,
    ) -> ListPage:
        """DELETE of all selected objects. Returns them as they were before the delete."""
        page = self._reads.list(target, selection)
        keys = [_object_key(item) for item in page.items]
        for start in range(0, len(keys), _DELETE_BATCH_SIZE):
            await self._deletes.delete_many(target.served, keys[start : start + _DELETE_BATCH_SIZE], options, writing)
        return page

    def _bound_pod_target(self, target: RequestTarget, body: Json) -> RequestTarget:
        """The pod that a binding names. Raises Invalid if it names none."""
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not name:
            raise errors.invalid(target.served, "", [required("metadata.name", "name or generateName is required")])
        return self.target(("", "v1", "pods"), target.namespace, name, "binding")

    def object_counts(self) -> dict[str, int]:
        """The number of stored objects of each kind."""
        kinds = dict.fromkeys(kind.full_name for kind in self.registry if kind.is_stored and kind.view is None)
        return {kind: len(self._store.watch_cache(kind).objects) for kind in kinds}

    def pod_log(self, target: RequestTarget, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        """GET of pods/log. The log of an unscheduled pod is empty.

        Raises NotFound for a missing pod, BadRequest for an unknown container, and Unavailable if this process runs
        no kubelet.
        """
        pod = decode(self._reads.get(target).body, dict)
        requested_container(pod, options.container)
        if not pod["spec"].get("nodeName"):
            return _empty_log()
        if self.pod_logs is None:
            raise errors.failure(503, "ServiceUnavailable", "no kubelet runs in this server: it keeps no logs")
        return self.pod_logs.read_log(pod, options)

    def pod(self, target: RequestTarget) -> Json:
        """The pod whose subresource is requested."""
        return decode(self._reads.get(target).body, dict)

    def pod_streams(self, target: RequestTarget) -> tuple[Json, PodAccess]:
        """The pod, and the `PodAccess` for its streams. Raises NotFound, BadRequest for an unscheduled pod,
        Unavailable.
        """
        pod = self.pod(target)
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {target.name} does not have a host assigned")
        if self.stream_servers is None:
            raise errors.failure(503, "ServiceUnavailable", "no kubelet runs in this server: it runs no containers")
        return pod, self.stream_servers(pod)

    async def maintain(self) -> None:
        """Compact the history, expire old events and send bookmarks periodically, until cancelled."""
        while True:
            await self._clock.sleep(_MAINTENANCE_SECONDS)
            await self.maintain_once()

    async def maintain_once(self) -> None:
        """Do one pass of `maintain`."""
        self._reads.forget_snapshots()
        await self._upkeep.run_once()

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
