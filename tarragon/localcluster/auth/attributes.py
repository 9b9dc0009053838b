"""What a request wants to do, in the words by which roles allow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tarragon.localcluster.api.paths import resource_path

_VERBS = {
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
    "PATCH": "patch",
    "POST": "create",
    "PUT": "update",
}
_FALSE = frozenset({"", "0", "false"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """`path` is set of a request that is about no resource: /version. Then only it and the verb count."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """As rules name it: `pods`, `pods/log`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_request(method: str, path: str, parts: Sequence[str], query: Mapping[str, str]) -> Attributes:
    """`parts` are the decoded parts of `path`."""
    match parts:
        case ["api", version, _, *_]:
            group, rest = "", parts[2:]
        case ["apis", group, version, _, *_]:
            rest = parts[3:]
        case _:
            return Attributes(verb=method.lower(), path=path)
    place = resource_path(group, version, rest)
    if place is None:  # deeper than anything served: judged by what it begins with, and then not found
        place = resource_path(group, version, rest[: 5 if rest[0] == "namespaces" else 3])
    if place is None:
        return Attributes(verb=method.lower(), path=path)
    is_namespace = place.plural == "namespaces" and not place.namespace
    verb, name = _VERBS.get(method, ""), place.name
    if not name and verb == "get":
        verb, name = ("watch" if _is_true(query, "watch") else "list"), _selected_name(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return Attributes(
        verb=verb,
        group=group,
        version=version,
        resource=place.plural,
        subresource=place.subresource,
        # A namespace is in itself: whoever may get all in it may get it.
        namespace=place.name if is_namespace else place.namespace,
        name=name,
    )


def _is_true(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() not in _FALSE


def _selected_name(query: Mapping[str, str]) -> str:
    """A list of what has one name is a question about that object: a role that names it allows it."""
    for selector in query.get("fieldSelector", "").split(","):
        field, is_equal, name = selector.replace("==", "=").partition("=")
        if field == "metadata.name" and is_equal:
            return name
    return ""
