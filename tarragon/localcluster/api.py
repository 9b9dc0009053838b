"""`Api`: the one facade of the embedded Kubernetes API that all fronts call, in process and over HTTP.

Reads answer at once, from committed state only. Writes answer when they are on the disk. Whatever fails raises an
error of `tarragon.cluster.errors` whose `status` is the complete metav1.Status that a kube-apiserver would send.
All methods belong to the thread of the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from tarragon.base.clock import Clock
from tarragon.cluster.port import DeleteOptions, LogOptions
from tarragon.localcluster.registry import Registry
from tarragon.localcluster.requests import (
    Deleted,
    Event,
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

ALL_OBJECTS = ListOptions()
FROM_THE_BEGINNING = WatchOptions()
PLAIN_WRITE = WriteOptions()
PLAIN_DELETE = DeleteOptions()
WHOLE_LOG = LogOptions()


class Watch:
    """A running watch: an async iterator over batches of events, each with all that was ready.

    It ends (StopAsyncIteration) after `close`, or raises Expired in the middle when its reader was so slow that the
    history has moved past it: over HTTP that is an ERROR event in the stream.
    """

    @property
    def resource_version(self) -> str:
        """The version up to which everything has been handed out."""
        raise NotImplementedError

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> list[Event]:
        raise NotImplementedError

    def bookmark(self) -> Event:
        """A BOOKMARK of `resource_version`, to be sent before a timeout ends the stream."""
        raise NotImplementedError

    def close(self) -> None:
        """End it, also from within another task that waits in `__anext__`."""
        raise NotImplementedError


class Api:
    """The embedded API: `await Api.open(path, clock)` makes one, `await close()` ends it."""

    registry: Registry
    pod_logs: PodLogs | None = None

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> Api:
        """The API over the store in the file `path`, which is made when it is not there.

        Raises a TarragonError that says what to do when the store is corrupt, newer than this program, on a network
        file system or open in another process.
        """
        raise NotImplementedError

    def target(self, path: tuple[str, str, str], namespace: str = "", name: str = "", subresource: str = "") -> Target:
        """The target for (group, version, plural). Raises NotFound when nothing is served there."""
        raise NotImplementedError

    def get(self, target: Target) -> bytes:
        """The encoded object in the target's version; with subresource `scale` an autoscaling/v1 Scale."""
        raise NotImplementedError

    def list(self, target: Target, options: ListOptions = ALL_OBJECTS) -> Page:
        """Raises BadRequest for selectors it can't read or fields it does not index, Expired for stale tokens."""
        raise NotImplementedError

    def watch(self, target: Target, options: WatchOptions = FROM_THE_BEGINNING) -> Watch:
        """Raises Expired at once when the history does not reach back, BadRequest for selectors as `list` does.

        A `name` in the target is a field selector on metadata.name.
        """
        raise NotImplementedError

    async def create(self, target: Target, body: Json, options: WriteOptions = PLAIN_WRITE) -> Written:
        """POST to a collection; with a name and subresource `binding` or `eviction`, to these."""
        raise NotImplementedError

    async def update(self, target: Target, body: Json, options: WriteOptions = PLAIN_WRITE) -> Written:
        """PUT of an object, its `status` or its `scale`."""
        raise NotImplementedError

    async def patch(self, target: Target, patch: Patch, options: WriteOptions = PLAIN_WRITE) -> Written:
        """PATCH of an object, its `status` or its `scale`. An apply patch is refused with 415 as yet."""
        raise NotImplementedError

    async def delete(
        self, target: Target, options: DeleteOptions = PLAIN_DELETE, writing: WriteOptions = PLAIN_WRITE
    ) -> Deleted:
        """DELETE of one object."""
        raise NotImplementedError

    async def delete_collection(
        self,
        target: Target,
        selection: ListOptions = ALL_OBJECTS,
        options: DeleteOptions = PLAIN_DELETE,
        writing: WriteOptions = PLAIN_WRITE,
    ) -> Page:
        """DELETE of everything selected; answers with the list of what was deleted, as it was before."""
        raise NotImplementedError

    def pod_log(self, target: Target, options: LogOptions = WHOLE_LOG) -> AsyncIterator[bytes]:
        """GET of pods/log. Raises NotFound without the pod, Unavailable without a kubelet in this process."""
        raise NotImplementedError

    async def maintain(self) -> None:
        """Run for ever: compact the history, expire old events, send bookmarks. Cancel it to end it."""
        raise NotImplementedError

    async def close(self) -> None:
        """Commit what is queued, end all watches, let go of the store."""
        raise NotImplementedError
