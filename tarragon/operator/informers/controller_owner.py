"""The index function of caches of owned objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tarragon.kube.meta import ObjectMeta, OwnerIdentity


class HasMetadata(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def controller_owner(owned: HasMetadata) -> Iterator[OwnerIdentity]:
    """The controller only: a second owner does not manage the object."""
    owner = owned.metadata.controller_identity
    if owner is not None:
        yield owner
