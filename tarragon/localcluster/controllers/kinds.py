"""Converts served kinds and CRDs to resources that can be listed and watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tarragon.kube.meta import AnyObject, CustomObject, Resource
from tarragon.localcluster.kinds.resource import Served


def kind_of(definition: CustomObject) -> Resource[AnyObject] | None:
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
        model=AnyObject,
        namespaced=spec.get("scope") == "Namespaced",
    )


def listable(kinds: Iterable[Served]) -> list[Resource[AnyObject]]:
    """The built-in kinds whose objects are stored, each once."""
    found: dict[tuple[str, str], Resource[AnyObject]] = {}
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
                model=AnyObject,
                namespaced=kind.namespaced,
            )
            found.setdefault((kind.group, kind.plural), resource)
    return list(found.values())


def _is_established(status: Any) -> bool:
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions or ())
