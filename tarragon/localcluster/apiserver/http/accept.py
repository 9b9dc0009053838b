"""The Accept header: selects the representation of a response, such as an object or a Table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

JSON = "application/json"


class Representation(NamedTuple):
    """A representation by the `as` and `v` parameters, as in `application/json;as=Table;v=v1;g=meta.k8s.io`."""

    kind: str
    version: str


PLAIN = Representation("", "")
"""The object itself, as JSON."""

_JSON_TYPES = frozenset({JSON, "application/*", "*/*"})


@lru_cache(maxsize=256)
def negotiate(header: str, offered: frozenset[Representation]) -> Representation | None:
    """Return the first offered form in the header's order. Plain JSON is always offered. None if nothing matches."""
    if not header:
        return PLAIN
    for media_type, form in _clauses(header):
        if media_type in _JSON_TYPES and (form == PLAIN or form in offered):
            return form
    return None


def _clauses(header: str) -> Iterator[tuple[str, Representation]]:
    for clause in header.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        kind = values.get("as", "")
        yield media_type, Representation(kind, values.get("v", "")) if kind else PLAIN
