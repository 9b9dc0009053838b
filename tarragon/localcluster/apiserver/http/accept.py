"""The Accept header: which of the forms that an answer can have the client wants."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

JSON = "application/json"


class Form(NamedTuple):
    """`as` and `v` of the header's parameters, as in `application/json;as=Table;v=v1;g=meta.k8s.io`."""

    kind: str
    version: str


PLAIN = Form("", "")
"""The object itself, as JSON."""

_WELCOME = frozenset({JSON, "application/*", "*/*"})


@lru_cache(maxsize=256)
def chosen(header: str, offered: frozenset[Form]) -> Form | None:
    """The first form in the header's order that is offered; plain JSON always is. None when nothing suits."""
    if not header:
        return PLAIN
    for media_type, form in _asked(header):
        if media_type in _WELCOME and (form == PLAIN or form in offered):
            return form
    return None


def _asked(header: str) -> Iterator[tuple[str, Form]]:
    for clause in header.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        given = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        kind = given.get("as", "")
        yield media_type, Form(kind, given.get("v", "")) if kind else PLAIN
