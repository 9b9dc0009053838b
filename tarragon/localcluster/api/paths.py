"""Parses URL paths of the Kubernetes API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
"""`/namespaces/a/status` addresses the namespace itself; `/namespaces/a/pods` does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePath:
    """What a path below a group-version addresses. Fields are empty for missing parts."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def segments(raw_path: str) -> list[str]:
    """The segments of a path, decoded one by one so that an encoded slash does not split one."""
    return [unquote(part) for part in raw_path.split("/") if part]


def resource_path(group: str, version: str, parts: Sequence[str]) -> ResourcePath | None:
    """What the segments after the group-version address, None for paths that no Kubernetes serves."""
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:  # noqa: PLR2004
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource, *more = (*parts, "", "")
    if any(more):
        return None
    return ResourcePath(
        group=group, version=version, plural=plural, namespace=namespace, name=name, subresource=subresource
    )
