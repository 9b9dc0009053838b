"""`Cluster`: everything the operator, the kubelet and the command line ask of a Kubernetes API.

Three implementations pass one contract suite: in process, over HTTP to the embedded server, over HTTP to a real
kube-apiserver (which is always right). Every failed call raises one of `cluster.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects: all of them by default. Selectors as kubectl writes them."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects at one moment; `resource_version` is where a watch goes on without a gap."""

    items: Sequence[T]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """`object` is None for a BOOKMARK, which only moves `resource_version` on."""

    type: EventType
    resource_version: str
    object: T | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Preconditions and manner of a delete; None leaves the choice to the server."""

    uid: str = ""
    resource_version: str = ""
    grace_seconds: int | None = None
    propagation: Literal["Background", "Foreground", "Orphan"] | None = None


PLAIN_DELETE = DeleteOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """As of `kubectl logs`."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None


WHOLE_LOG = LogOptions()


class Cluster(Protocol):
    """A Kubernetes API."""

    async def get(self, resource: Resource[T], key: Key) -> T:
        """Raises NotFound."""
        ...

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING) -> Listing[T]:
        """All pages together, in the order of namespaces and names.

        Items of built-in kinds do not say their kind and apiVersion, as a real server leaves them out.
        """
        ...

    def watch(self, resource: Resource[T], selection: Selection, since: str) -> AsyncIterator[WatchEvent[T]]:
        """Everything after `since`, until the server ends it (which is normal: watch again from the last version seen).

        Raises Expired, at once or in the middle, when the history no longer reaches back to `since`: list anew, and
        report what has vanished meanwhile as deleted. Raises Unavailable when the connection breaks.
        """
        ...

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        """The namespace is the body's. Raises AlreadyExists, Invalid, Forbidden (quota, policy, a namespace that ends:
        then with the cause NamespaceTerminating), NotFound when there is no such namespace or kind.
        """
        ...

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        """An RFC 7386 merge patch. With `metadata.resourceVersion` in it, it is conditional: Conflict.

        A `metadata.uid` beside it guards against nothing more. Alone, one that is not the object's is Invalid.
        """
        ...

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = PLAIN_DELETE) -> None:
        """Raises NotFound; Conflict when a precondition does not hold. Grace and finalizers keep it for a while."""
        ...

    def pod_log(self, key: Key, options: LogOptions = WHOLE_LOG) -> AsyncIterator[bytes]:
        """Chunks of the container's output, not cut at line ends; none while no node has the pod.

        Raises NotFound, and BadRequest for a container that the pod has not or that has not started.
        """
        ...
