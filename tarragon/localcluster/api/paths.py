"""URL paths of the Kubernetes API, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

_OF_A_NAMESPACE = frozenset({"status", "finalize"})
"""`/namespaces/a/status` is about the namespace itself; `/namespaces/a/pods` is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePath:
    """What a path below a group-version addresses; the fields are empty where it does not say."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def segments(raw_path: str) -> list[str]:
    """The parts between the slashes, decoded one by one, so that an encoded slash stays in its part."""
    return [unquote(part) for part in raw_path.split("/") if part]


def resource_path(group: str, version: str, parts: Sequence[str]) -> ResourcePath | None:
    """What `parts`, all that follows the group-version, address; None for what no Kubernetes serves."""
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in _OF_A_NAMESPACE:  # noqa: PLR2004
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource, *more = (*parts, "", "")
    if any(more):
        return None
    return ResourcePath(
        group=group, version=version, plural=plural, namespace=namespace, name=name, subresource=subresource
    )
