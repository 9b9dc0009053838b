"""Answers on the wire: JSON bytes, lists joined from encoded objects, errors as metav1.Status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from tarragon.cluster.errors import ApiError
from tarragon.kube.codec import encode
from tarragon.localcluster.requests import Page

_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}

_WARNING_BYTES = 1000
"""Of one warning: headers of all warnings together must fit into what clients accept."""


def json_bytes(data: bytes, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=data, status=code, headers={**_JSON, **headers} if headers else _JSON)


def json_value(value: Any, content_type: str = "application/json") -> web.Response:
    return json_bytes(encode(value), headers={"Content-Type": content_type})


def refusal(error: ApiError) -> web.Response:
    """The Status, with what HTTP itself says of it."""
    headers = {"Retry-After": f"{error.retry_after:.0f}"} if error.retry_after else None
    return json_bytes(encode(error.status), error.code, headers)


def text(words: str, status: int = 200) -> web.Response:
    return web.Response(text=words, status=status, headers={"Cache-Control": "no-cache, private"})


def with_warnings(response: web.Response, warnings: Sequence[str]) -> web.Response:
    """RFC 7234 Warning headers, which kubectl prints. A warning quotes a user's own field names: no line ends in it."""
    for warning in warnings:
        printable = "".join(letter if letter.isprintable() else " " for letter in warning)
        quoted = printable.encode()[:_WARNING_BYTES].decode(errors="ignore").replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def list_metadata(page: Page) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def list_bytes(page: Page) -> bytes:
    """The list; its items go out as the store holds them."""
    served = page.served
    head = {
        "kind": served.list_kind or f"{served.kind}List",
        "apiVersion": served.api_version,
        "metadata": list_metadata(page),
    }
    return b'%b,"items":[%b]}' % (encode(head)[:-1], b",".join(page.items))
