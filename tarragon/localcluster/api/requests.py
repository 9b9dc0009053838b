"""What can be asked of the embedded API, and what it answers, whatever road the question came by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from tarragon.client.port import EventType, LogOptions
from tarragon.kube.meta import Key
from tarragon.localcluster.kinds.registry import Served

Json = dict[str, Any]
"""A JSON object. Whoever hands one to the Api gives it away: the Api may change it."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's path addresses.

    `namespace` is empty for all namespaces and for kinds that have none, `name` for collections, `subresource` for
    the object itself.
    """

    served: Served
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The query of a list as the URL spells it; an empty text or 0 is a parameter that was not given."""

    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The query of a watch. `resource_version` "" and "0" begin with an ADDED for every object there is.

    `timeoutSeconds` is the front's: it stops reading and calls `Watch.close`.
    """

    labels: str = ""
    fields: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    allow_bookmarks: bool = False
    send_initial_events: bool = False


class FieldValidation(Enum):
    """What becomes of fields that the schema of a kind does not know."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


Check = Callable[[Served, Mapping[str, Any], Mapping[str, Any] | None], None]
"""Of an object that is about to be stored, and the one in whose place: raises an ApiError when that must not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The query of a write. An empty `field_manager` is written as `unknown`; fronts default it from the User-Agent.

    `doubles` says what of the body came twice.
    `force` lets an apply take what others own. `check` is what whoever writes may not write, whatever the verbs allow
    them; in process, nothing.
    """

    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.WARN
    field_manager: str = ""
    doubles: Sequence[str] = ()
    force: bool = False
    check: Check | None = None


class PatchType(Enum):
    """The Content-Type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch with its decoded body: a list for JSON patches, an object for all others."""

    type: PatchType
    body: Any


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or one page of it. `items` are encoded, in the version that was asked for, in order of their keys."""

    served: Served
    items: Sequence[bytes]
    resource_version: str
    continue_token: str = ""
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch. `object` is encoded; a BOOKMARK's holds only kind, apiVersion and metadata."""

    type: EventType
    resource_version: str
    object: bytes

    @property
    def line(self) -> bytes:
        """As it goes over the wire, with its line end."""
        return b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.object)


@dataclass(frozen=True, slots=True)
class Written:
    """What a create, update or patch left: the encoded object, and words for Warning headers.

    `created` distinguishes 201 from 200. For `binding` and `eviction` the object is a metav1.Status.
    """

    object: bytes
    created: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete left: the object (it may live on for its grace or its finalizers) or a metav1.Status, encoded."""

    object: bytes
    is_gone: bool


class PodLogs(Protocol):
    """Whoever runs a kubelet in this process can read what its containers said."""

    def read(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """Chunks of the container's output. `pod` is the whole object; raises an ApiError (BadRequest, NotFound)."""
        ...
