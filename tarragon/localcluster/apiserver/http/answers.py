"""Answers on the wire: JSON bytes, lists joined from encoded objects, errors as metav1.Status."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web

from tarragon.client.errors import ApiError
from tarragon.kube.codec import encode
from tarragon.localcluster.api.requests import Page

_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}

_OF_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
_AT_ONCE = 100
"""Objects of a list."""
_WARNING_BYTES = 1000
"""Of one warning: headers of all warnings together must fit into what clients accept."""


def json_bytes(data: bytes, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=data, status=code, headers={**_JSON, **headers} if headers else _JSON)


def json_value(value: Any, content_type: str = "application/json") -> web.Response:
    return json_bytes(encode(value), headers={"Content-Type": content_type})


def unless_known(request: web.BaseRequest, data: bytes, headers: Mapping[str, str]) -> web.Response:
    """304 for a client that has it already."""
    tag = f'"{hashlib.sha256(data).hexdigest().upper()}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag})
    return json_bytes(data, headers={**headers, "ETag": tag})


def for_eyes(request: web.BaseRequest, answer: web.StreamResponse) -> web.StreamResponse:
    """In lines, if that was asked for, or for a person at a command line or a browser. Streams stay as they are."""
    if not is_for_eyes(request) or not isinstance(answer, web.Response):
        return answer
    if answer.content_type == "application/json" and isinstance(answer.body, bytes):
        answer.body = msgspec.json.format(answer.body, indent=2) + b"\n"
    return answer


def is_for_eyes(request: web.BaseRequest) -> bool:
    """Whether an answer in lines was asked for, or is likely to be read by a person."""
    asked = request.query.get("pretty")
    if asked is not None:
        return asked.lower() in {"true", "1"}
    return request.headers.get("User-Agent", "").startswith(_OF_PEOPLE)


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
    return b"%b%b]}" % (_list_head(page), b",".join(page.items))


def listed(request: web.BaseRequest, page: Page) -> web.Response:
    """A long list leaves a part at a time: it may be larger than all else that the server holds."""
    if len(page.items) <= _AT_ONCE or request.version < HttpVersion11 or is_for_eyes(request):
        return json_bytes(list_bytes(page))
    return web.Response(body=_parts(page), headers=_JSON)


async def _parts(page: Page) -> AsyncIterator[bytes]:
    items, before = page.items, _list_head(page)
    for start in range(0, len(items), _AT_ONCE):
        yield before + b",".join(items[start : start + _AT_ONCE])
        before = b","
    yield b"]}"


def _list_head(page: Page) -> bytes:
    served = page.served
    head = {
        "kind": served.list_kind or f"{served.kind}List",
        "apiVersion": served.api_version,
        "metadata": list_metadata(page),
    }
    return b'%b,"items":[' % encode(head)[:-1]
