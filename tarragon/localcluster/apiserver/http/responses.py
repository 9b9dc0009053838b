"""Responses: JSON bodies, lists joined from encoded objects, errors as metav1.Status."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web

from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.api.requests import Json, ListPage

_JSON = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}

_OF_PEOPLE = ("curl", "Wget", "Mozilla/5.0")
AT_ONCE = 100
"""The number of objects of a list that are sent or converted together: a few milliseconds."""
_WARNING_BYTES = 1000
"""The length limit of one warning: all warning headers together must fit into what clients accept."""


def json_bytes(data: bytes, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=data, status=code, headers={**_JSON, **headers} if headers else _JSON)


def json_value(value: Any, content_type: str = "application/json") -> web.Response:
    return json_bytes(encode(value), headers={"Content-Type": content_type})


def with_etag(request: web.BaseRequest, data: bytes, headers: Mapping[str, str]) -> web.Response:
    """Return the data with an ETag, or 304 when the client's cached copy is current."""
    tag = f'"{hashlib.sha256(data).hexdigest().upper()}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag})
    return json_bytes(data, headers={**headers, "ETag": tag})


def pretty(request: web.BaseRequest, answer: web.StreamResponse) -> web.StreamResponse:
    """Indent a JSON response if requested, or if curl, wget or a browser asks. Streams stay as they are."""
    if not wants_pretty(request) or not isinstance(answer, web.Response):
        return answer
    if answer.content_type == "application/json" and isinstance(answer.body, bytes):
        answer.body = msgspec.json.format(answer.body, indent=2) + b"\n"
    return answer


def wants_pretty(request: web.BaseRequest) -> bool:
    """Whether indented JSON was requested, or a person is likely to read the response."""
    asked = request.query.get("pretty")
    if asked is not None:
        return asked.lower() in {"true", "1"}
    return request.headers.get("User-Agent", "").startswith(_OF_PEOPLE)


def error_response(error: ApiError) -> web.Response:
    """Return the error's Status, with its HTTP code and Retry-After header."""
    headers = {"Retry-After": f"{error.retry_after:.0f}"} if error.retry_after else None
    return json_bytes(encode(error.status), error.code, headers)


def text(words: str, status: int = 200) -> web.Response:
    return web.Response(text=words, status=status, headers={"Cache-Control": "no-cache, private"})


def with_warnings(response: web.Response, warnings: Sequence[str]) -> web.Response:
    """Add RFC 7234 Warning headers, which kubectl prints. Line breaks are replaced: warnings quote field names."""
    for warning in warnings:
        printable = "".join(letter if letter.isprintable() else " " for letter in warning)
        quoted = printable.encode()[:_WARNING_BYTES].decode(errors="ignore").replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def list_metadata(page: ListPage) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def list_bytes(page: ListPage) -> bytes:
    """Return the encoded list. Its items are the bytes that the store holds."""
    return b"%b%b]}" % (_list_head(page), b",".join(page.items))


def listed(request: web.BaseRequest, page: ListPage) -> web.Response:
    """Send a long list in chunks: as one body it could exceed everything else that the server holds in memory."""
    if len(page.items) <= AT_ONCE or request.version < HttpVersion11 or wants_pretty(request):
        return json_bytes(list_bytes(page))
    return web.Response(body=_parts(page), headers=_JSON)


async def _parts(page: ListPage) -> AsyncIterator[bytes]:
    items, before = page.items, _list_head(page)
    for start in range(0, len(items), AT_ONCE):
        yield before + b",".join(items[start : start + AT_ONCE])
        before = b","
    yield b"]}"


def _list_head(page: ListPage) -> bytes:
    served = page.served
    head = {
        "kind": served.list_kind or f"{served.kind}List",
        "apiVersion": served.api_version,
        "metadata": list_metadata(page),
    }
    return b'%b,"items":[' % encode(head)[:-1]


async def in_slices(items: Sequence[bytes], shown: Callable[[Sequence[Json]], Sequence[Json]]) -> list[msgspec.Raw]:
    """Convert the encoded objects of a long list with `shown`, AT_ONCE at a time, and encode the results.

    Other tasks run in between. The objects are those of one revision, however long it takes.
    """
    converted: list[msgspec.Raw] = []
    for start in range(0, len(items), AT_ONCE):
        values = [decode(item, dict) for item in items[start : start + AT_ONCE]]
        converted += [msgspec.Raw(encode(one)) for one in shown(values)]
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, not a wait
    return converted
