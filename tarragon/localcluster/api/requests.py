"""Requests to the embedded API and its responses, in process and over HTTP alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from tarragon.client.port import EventType, LogOptions
from tarragon.kube.meta import Key
from tarragon.localcluster.kinds.registry import ServedKind

Json = dict[str, Any]
"""A JSON object. The Api may change objects that it is given, so callers must not use them afterwards."""


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """What a request's path addresses.

    `namespace` is empty for all namespaces and for kinds that have none, `name` for collections, `subresource` for
    the object itself.
    """

    served: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The query parameters of a list, as in the URL. An empty text or 0 stands for a missing parameter."""

    labels: str = ""
    fields: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The query parameters of a watch. A `resource_version` of "" or "0" starts with an ADDED event for every object.

    The HTTP server handles `timeoutSeconds`: it stops reading and calls `Watch.close`.
    """

    labels: str = ""
    fields: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    allow_bookmarks: bool = False
    send_initial_events: bool = False


class FieldValidation(Enum):
    """How a write treats unknown and duplicate fields."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write. An empty `field_manager` is recorded as `unknown`; the HTTP server defaults it from the
    User-Agent.

    `duplicate_fields` are warnings about duplicate fields of the body. `force` lets an apply take fields that others
    own.
    """

    dry_run: bool = False
    field_validation: FieldValidation = FieldValidation.WARN
    field_manager: str = ""
    duplicate_fields: Sequence[str] = ()
    force: bool = False


class PatchType(Enum):
    """The Content-Type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class PatchBody:
    """A patch with its decoded body: a list for JSON patches, an object for all others."""

    type: PatchType
    body: Any


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list, or one page of it. `items` are encoded in the requested version, in the order of their keys."""

    served: ServedKind
    items: Sequence[bytes]
    resource_version: str
    continue_token: str = ""
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """One event of a watch. `object` is encoded; a BOOKMARK's holds only kind, apiVersion and metadata."""

    type: EventType
    resource_version: str
    object: bytes

    @property
    def line(self) -> bytes:
        """The event as a line of the response, with its line end."""
        return b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.object)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a create, update or patch: the encoded object, and texts for Warning headers.

    `created` distinguishes 201 from 200. For `binding` and `eviction` the object is a metav1.Status.
    """

    object: bytes
    created: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The encoded result of a delete: the object, which grace or finalizers may still keep, or a metav1.Status."""

    object: bytes
    is_gone: bool


class PodLogs(Protocol):
    """Reads logs of containers. A kubelet in this process implements it."""

    def read_log(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """Chunks of the container's output. `pod` is the whole object; raises an ApiError (BadRequest, NotFound)."""
        ...
