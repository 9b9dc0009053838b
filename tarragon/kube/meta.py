"""Metadata, keys, owners and resources of Kubernetes objects.

Structs are for reading only, because they drop unknown fields. Never write a decoded object back; send patches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from tarragon.base.memoized import Memoized
from tarragon.kube.codec import decode
from tarragon.kube.json_depth import MAX_DEPTH, is_depth_within, with_limited_depth

Json: TypeAlias = Any
"""A JSON value of unknown structure. Only this alias and the readers use Any."""

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object. Treat it as immutable."""

RAW_NULL = msgspec.Raw(b"null")
"""A missing part."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """The namespace and name of an object. `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[T]):
    """A resource of the API, and the type into which its objects are decoded.

    `model` is a msgspec Struct for some of the fields, or `dict` for the whole object.
    """

    group: str
    version: str
    plural: str
    kind: str
    model: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The apiVersion as in manifests: `v1`, `kubeflow.org/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """The name as in kubectl's messages: `pods`, `tfjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def with_model(self, model: type[U]) -> Resource[U]:
        """The same resource, decoded into another type."""
        return replace(self, model=model)  # type: ignore[return-value, arg-type]

    def owner_identity(self, metadata: ObjectMeta) -> OwnerIdentity:
        """The identity of an object of this kind in the owner references of others."""
        return OwnerIdentity(
            namespace=metadata.namespace, group=self.group, kind=self.kind, name=metadata.name, uid=metadata.uid
        )

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path. An empty namespace means all namespaces, or a cluster-scoped kind."""
        parts = ["/api" if not self.group else "/apis", *([self.group] if self.group else []), self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


class PartialObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of all partial types: camelCase in JSON, Python's names in code.

    Decoded JSON has no cycles, so these objects are exempt from garbage collection: there may be 100,000 of them.
    """


def group_of(api_version: str) -> str:
    """The API group of an apiVersion: `kubeflow.org` for `kubeflow.org/v1`, empty for `v1` of the core group."""
    return api_version.rpartition("/")[0]


class OwnerIdentity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The identity of an owner. An object belongs to it only if its owner reference has exactly this identity.

    A uid alone is no proof: the API server does not verify owner references, so users can write the uid of a job in a
    namespace that they may not even read. The version is not part of the identity, because an object is the same in all
    versions of its API.
    """

    namespace: str
    """The namespace of the owner and of the owned objects; empty for a cluster-scoped owner."""
    group: str
    kind: str
    name: str
    uid: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class OwnerReference(PartialObject, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False

    def identity(self, namespace: str) -> OwnerIdentity:
        """The identity of the owner. `namespace` is that of the object that has the reference."""
        return OwnerIdentity(
            namespace=namespace, group=group_of(self.api_version), kind=self.kind, name=self.name, uid=self.uid
        )


class ManagedFieldsEntry(PartialObject, frozen=True):
    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: dt.datetime | None = None
    subresource: str = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")


class ObjectMeta(PartialObject, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: dt.datetime | None = None
    deletion_timestamp: dt.datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_being_deleted(self) -> bool:
        """Whether the object is being deleted: its grace period is not over, or it has a finalizer."""
        return self.deletion_timestamp is not None

    @property
    def controller_ref(self) -> OwnerReference | None:
        """The owner reference with `controller: true`, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def controller_identity(self) -> OwnerIdentity | None:
        """The identity of the controller, if any. It is the `owner_identity` of the job that controls the object."""
        for owner in self.owner_references:  # a loop, not a generator: this runs for each of 40,000 pods
            if owner.controller:
                return owner.identity(self.namespace)
        return None


class PartialObjectMetadata(PartialObject, frozen=True):
    """The metadata of an object of any kind."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class CustomObjectMeta(ObjectMeta, frozen=True):
    """Metadata with managedFields, which are often larger than the object and are decoded on access."""

    raw_managed_fields: msgspec.Raw = msgspec.field(default=RAW_NULL, name="managedFields")

    @property
    def managed_fields(self) -> list[ManagedFieldsEntry]:
        """The managed fields; empty if they can't be decoded."""
        entries: type[list[ManagedFieldsEntry] | None] = list[ManagedFieldsEntry] | None  # type: ignore[assignment]
        try:
            return decode(with_limited_depth(bytes(self.raw_managed_fields)), entries) or []
        except msgspec.DecodeError:
            return []


class CustomObject(PartialObject, frozen=True):
    """A custom object. Its spec and status may have any structure, so readers must check every step.

    Both are kept encoded, which takes a tenth of the memory, and decoded on each access: keep the decoded value while
    you need it. Decoding never raises. Values deeper than `json_depth.MAX_DEPTH` are replaced by
    `json_depth.TOO_DEEP_PLACEHOLDER`.
    """

    api_version: str = ""
    kind: str = ""
    metadata: CustomObjectMeta = CustomObjectMeta()
    raw_spec: msgspec.Raw = msgspec.field(default=RAW_NULL, name="spec")
    raw_status: msgspec.Raw = msgspec.field(default=RAW_NULL, name="status")

    def __post_init__(self) -> None:
        # Copy the Raw parts: each is a view that would keep the whole text in memory.
        for part in ("raw_spec", "raw_status"):
            force_setattr(self, part, getattr(self, part).copy())

    @property
    def owner_identity(self) -> OwnerIdentity:
        """The identity of this object in the controller references of its children."""
        return OwnerIdentity(
            namespace=self.metadata.namespace,
            group=group_of(self.api_version),
            kind=self.kind,
            name=self.metadata.name,
            uid=self.metadata.uid,
        )

    @property
    def spec(self) -> Json:
        """The decoded spec; None if it can't be decoded, and then `spec_error` says why."""
        return _read(bytes(self.raw_spec))

    @property
    def spec_error(self) -> str:
        """Why the spec can't be decoded completely; empty if it can."""
        if not is_depth_within(bytes(self.raw_spec), MAX_DEPTH):
            return f"is nested deeper than {MAX_DEPTH} levels"
        try:
            decode(bytes(self.raw_spec), object)
        except msgspec.DecodeError as error:
            return f"can't be decoded: {error}"
        return ""

    @property
    def status(self) -> Json:
        """The decoded status; None if it can't be decoded. Readers of equal statuses may share one value: one decision
        reads a job's status a dozen times.
        """
        return _read_memoized(bytes(self.raw_status))


def _read(raw: bytes) -> Json:
    try:
        return decode(raw, object)
    except msgspec.DecodeError:
        return None


_read_memoized: Memoized[Json] = Memoized(_read)
