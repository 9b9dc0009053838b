"""`Client`: the Kubernetes API as the operator, the kubelet and the command line use it.

The in-process API and the HTTP client pass the same contract tests, the latter against the embedded server and against
a real kube-apiserver, which is authoritative. Every failed call raises one of `tarragon.client.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects objects of a kind; by default all of them. Label and field selectors have kubectl's syntax."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


ALL_OBJECTS = Selector()


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """A consistent list of objects. A watch from `resource_version` continues without a gap."""

    items: Sequence[T]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """An event of a watch. `object` is None for a BOOKMARK, which only advances `resource_version`.

    `ends_initial_events` is true for the BOOKMARK of a streaming list that follows its last object.
    """

    type: EventType
    resource_version: str
    object: T | None
    ends_initial_events: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Preconditions, grace period and propagation policy of a delete; None leaves the choice to the server."""

    uid: str = ""
    resource_version: str = ""
    grace_period_seconds: int | None = None
    propagation_policy: Literal["Background", "Foreground", "Orphan"] | None = None


DEFAULT_DELETE = DeleteOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of `kubectl logs`."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None


DEFAULT_LOG = LogOptions()


class Client(Protocol):
    """A Kubernetes API."""

    async def get(self, resource: Resource[T], key: Key) -> T:
        """Get one object. Raises NotFound."""
        ...

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        """List all pages, in the order of namespaces and names.

        Items of built-in kinds have no kind and apiVersion, because a real server leaves them out of lists.
        """
        ...

    def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        """Watch all changes after `since`, until the server ends the watch.

        That is normal; watch again from the last version seen. Raises ResourceExpired, at once or later, if the history
        no longer reaches back to `since`: list again, and treat objects that are missing as deleted. Raises
        Unavailable if the connection breaks.
        """
        ...

    def stream_list(self, resource: Resource[T], selection: Selector) -> AsyncIterator[WatchEvent[T]] | None:
        """Watch from now on, after an ADDED for each object and a BOOKMARK that `ends_initial_events`.

        Changes may come before that BOOKMARK, too. The events before it may have no `resource_version`. None if this
        client has no streaming lists. Raises errors of a server that has them and fails at them: `list`, then `watch`.
        """
        ...

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        """Create an object in the namespace that its metadata names.

        Raises AlreadyExists, Invalid, Forbidden (quota, policy, or with the cause NamespaceTerminating a namespace that
        is being deleted), and NotFound if the namespace or kind does not exist.
        """
        ...

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        """Apply an RFC 7386 merge patch. If it has a `metadata.resourceVersion` that is stale, raises Conflict.

        A `metadata.uid` in addition to it has no further effect. Alone, a uid that is not the object's raises Invalid.
        """
        ...

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = DEFAULT_DELETE) -> None:
        """Delete an object. Raises NotFound, and Conflict if a precondition does not hold.

        A grace period or finalizers delay the removal.
        """
        ...

    def pod_log(self, key: Key, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        """Stream a container's output in chunks that don't end at line ends; nothing while the pod is not bound.

        Raises NotFound, and BadRequest for a container that does not exist or has not started.
        """
        ...
