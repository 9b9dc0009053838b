"""Warnings in the responses of API servers: deprecated versions, unknown fields, policies that warn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

MAX_REMEMBERED = 1000
"""The number of different warnings that are reported: a server could make up texts without end."""

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
"""A value of the header `Warning` (RFC 7234). Kubernetes uses the code 299, and so do we, as client-go does."""


class ServerWarnings:
    """Gives each distinct warning to `handler` once."""

    def __init__(self) -> None:
        self.handler: Callable[[str], None] | None = None
        self._reported: set[str] = set()

    def take(self, headers: Iterable[str]) -> None:
        for text in warnings_in(headers):
            if self.handler is None or text in self._reported or len(self._reported) >= MAX_REMEMBERED:
                continue
            self._reported.add(text)
            self.handler(text)


def warnings_in(headers: Iterable[str]) -> Iterator[str]:
    """The texts in the values of the header `Warning`."""
    for value in headers:
        for found in _WARNING.finditer(value):
            yield re.sub(r"\\(.)", r"\1", found[1])
