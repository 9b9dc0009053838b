"""The kinds that CustomResourceDefinitions add, as resources that can be listed and watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.kube.meta import AnyObject, CustomObject, Resource


def kind_of(definition: CustomObject) -> Resource[AnyObject] | None:
    """In the version that is stored if that is served, else in any that is. None when no version is."""
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
