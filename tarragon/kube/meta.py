"""What every Kubernetes object has: a key, metadata, owners; and how a kind is addressed.

Structs are for reading only: they drop what they do not know. Never write a decoded object back, send patches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from tarragon.kube.codec import decode
from tarragon.kube.nesting import MAX_DEPTH, is_within, within_limit

Json: TypeAlias = Any
"""A value as JSON has it, of a shape that somebody else decides. Saying it is the one use of Any outside of readers."""

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object; treat it as frozen."""

NULL = msgspec.Raw(b"null")
"""A part that is not there."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which object of a kind: `namespace` is empty for kinds that live outside of namespaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[T]):
    """A kind of object as the API addresses it, with the type its objects are decoded into.

    `model` is a msgspec Struct for a slim reading, or `dict` for the whole object.
    """

    group: str
    version: str
    plural: str
    kind: str
    model: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As written in manifests: `v1`, `kubeflow.org/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """As kubectl names it in messages: `pods`, `tfjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def reading(self, model: type[U]) -> Resource[U]:
        """The same kind, decoded into another type."""
        return replace(self, model=model)  # type: ignore[return-value, arg-type]

    def as_owner(self, metadata: ObjectMeta) -> OwnerIdentity:
        """The identity by which others name an object of this kind as their owner."""
        return OwnerIdentity(
            namespace=metadata.namespace, group=self.group, kind=self.kind, name=metadata.name, uid=metadata.uid
        )

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path. An empty namespace addresses all of them (or a kind that has none)."""
        parts = ["/api" if not self.group else "/apis", *([self.group] if self.group else []), self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all slices: JSON's camelCase outside, Python's names inside.

    What was read from JSON has no cycles: the garbage collector need not look at it, a hundred thousand times.
    """


def group_of(api_version: str) -> str:
    """The API group of an apiVersion: `kubeflow.org` of `kubeflow.org/v1`, empty for the core group's `v1`."""
    return api_version.rpartition("/")[0]


class OwnerIdentity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The identity of an object that owns others. An object is owned only if its reference gives exactly this identity.

    A uid alone proves nothing: the API server checks no ownerReference, so a user can write the uid of a job in a
    namespace that this user may not even read. The version of the group does not count: a job has the same identity in
    all versions of its API.
    """

    namespace: str
    """An owner and what it owns are in the same namespace; empty for an owner that has none."""
    group: str
    kind: str
    name: str
    uid: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False

    def identity(self, namespace: str) -> OwnerIdentity:
        """The identity of the owner, if it is in this namespace: that of the object that has the reference."""
        return OwnerIdentity(
            namespace=namespace, group=group_of(self.api_version), kind=self.kind, name=self.name, uid=self.uid
        )


class ManagedField(Struct, frozen=True):
    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: dt.datetime | None = None
    subresource: str = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")


class ObjectMeta(Struct, frozen=True):
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
    def is_ending(self) -> bool:
        """Somebody has deleted it and it is still there: for its grace period or a finalizer."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that manages it, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def controlled_by(self) -> OwnerIdentity | None:
        """The identity of the controller, if any. A job owns an object if this equals the job's `as_owner`."""
        for owner in self.owner_references:  # a loop, not a generator: this is asked for each of 40,000 pods
            if owner.controller:
                return owner.identity(self.namespace)
        return None


class AnyObject(Struct, frozen=True):
    """An object of any kind of which only the metadata matters."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class CustomMeta(ObjectMeta, frozen=True):
    """With who wrote what of the object, which is often longer than the object; read when it is asked for."""

    raw_managed_fields: msgspec.Raw = msgspec.field(default=NULL, name="managedFields")

    @property
    def managed_fields(self) -> list[ManagedField]:
        """None where they can't be read."""
        entries: type[list[ManagedField] | None] = list[ManagedField] | None  # type: ignore[assignment]
        try:
            return decode(within_limit(bytes(self.raw_managed_fields)), entries) or []
        except msgspec.DecodeError:
            return []


class CustomObject(Struct, frozen=True):
    """An object of a custom kind. Its spec and status are whatever a user wrote: readers must check every step.

    They are kept as they came, which takes a tenth of the room, and read anew each time: hold on to what you read.
    Reading raises nothing. Values deeper than `nesting.MAX_DEPTH` are replaced by `nesting.LEFT_OUT`.
    """

    api_version: str = ""
    kind: str = ""
    metadata: CustomMeta = CustomMeta()
    raw_spec: msgspec.Raw = msgspec.field(default=NULL, name="spec")
    raw_status: msgspec.Raw = msgspec.field(default=NULL, name="status")

    def __post_init__(self) -> None:
        # A part that was decoded as Raw is a view of the text that it stood in, and would hold on to all of it.
        for part in ("raw_spec", "raw_status"):
            force_setattr(self, part, getattr(self, part).copy())

    @property
    def as_owner(self) -> OwnerIdentity:
        """The identity by which pods, services and others name this object as their controller."""
        return OwnerIdentity(
            namespace=self.metadata.namespace,
            group=group_of(self.api_version),
            kind=self.kind,
            name=self.metadata.name,
            uid=self.metadata.uid,
        )

    @property
    def spec(self) -> Json:
        """None for one that can't be read; `spec_fault` says why."""
        return _read(self.raw_spec)

    @property
    def spec_fault(self) -> str:
        """What keeps the spec from being read as it was written; empty for nearly all."""
        if not is_within(bytes(self.raw_spec), MAX_DEPTH):
            return f"is nested deeper than {MAX_DEPTH} levels"
        try:
            decode(bytes(self.raw_spec), object)
        except msgspec.DecodeError as error:
            return f"can't be read: {error}"
        return ""

    @property
    def status(self) -> Json:
        """None for one that can't be read."""
        return _read(self.raw_status)


def _read(raw: msgspec.Raw) -> Json:
    try:
        return decode(bytes(raw), object)
    except msgspec.DecodeError:
        return None
