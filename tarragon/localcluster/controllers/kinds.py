"""Converts served kinds and CRDs to resources that can be listed and watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tarragon.kube.meta import CustomObject, PartialObjectMetadata, Resource
from tarragon.localcluster.kinds.resource import ServedKind


def kind_of(definition: CustomObject) -> Resource[PartialObjectMetadata] | None:
    """The resource of a CRD in its storage version, or another served one; None before it is established."""
    if not _is_established(definition.status):
        return None
    spec: Mapping[str, Any] = definition.spec if isinstance(definition.spec, dict) else {}
    served = [version for version in spec.get("versions") or [] if version.get("served")]
    if not served:
        return None
    names = spec.get("names") or {}
    return Resource(
        group=str(spec.get("group") or ""),
        version=str(max(served, key=lambda version: bool(version.get("storage")))["name"]),
        plural=str(names.get("plural") or ""),
        kind=str(names.get("kind") or ""),
        model=PartialObjectMetadata,
        namespaced=spec.get("scope") == "Namespaced",
    )


def listable(kinds: Iterable[ServedKind]) -> list[Resource[PartialObjectMetadata]]:
    """The built-in kinds whose objects are stored, each once."""
    found: dict[tuple[str, str], Resource[PartialObjectMetadata]] = {}
    for kind in kinds:
        if (
            kind.is_stored
            and kind.view is None
            and not kind.is_custom
            and {"list", "watch", "delete"} <= set(kind.verbs)
        ):
            resource = Resource(
                group=kind.group,
                version=kind.version,
                plural=kind.plural,
                kind=kind.kind,
                model=PartialObjectMetadata,
                namespaced=kind.namespaced,
            )
            found.setdefault((kind.group, kind.plural), resource)
    return list(found.values())


def _is_established(status: Any) -> bool:
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions or ())
