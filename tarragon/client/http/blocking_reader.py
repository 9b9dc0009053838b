"""Reads from an API server with the standard library, on one connection, for programs that read a little and end.

Importing aiohttp takes longer than all the rest of `tarragon list`. No failed request is sent again, and a read holds
up the event loop, its timeouts included: whoever watches, writes, or has anything else to do meanwhile uses
`HttpClient`.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from typing import Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from tarragon.client.errors import ResourceExpired, unavailable, unreachable
from tarragon.client.http.error_decoding import error_from_body
from tarragon.client.http.requests import (
    PAGE,
    PAGED_ATTEMPTS,
    ListPage,
    collection_path,
    decode_response,
    object_path,
    selector_query,
)
from tarragon.client.http.server_warnings import ServerWarnings
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

_CONNECT_SECONDS = 5.0
"""The timeout for the connection with its TLS handshake, in which a server that was frozen does not take part."""
_RESPONSE_SECONDS = 30.0
_OK = 200


class BlockingReader:
    """The methods `get` and `list` of a `Client`. `url` is https, and the server's authority that of `ca_data`, PEM.

    A coroutine of it never waits for anything but the server, so that one request is answered after the other. It does
    not wait beyond `deadline` (monotonic) for all requests together.
    """

    def __init__(self, url: str, ca_data: bytes, token: str, user_agent: str, deadline: float = math.inf) -> None:
        self._url = url
        self._deadline = deadline
        address = urlsplit(url)
        context = ssl.create_default_context(cadata=ca_data.decode())
        self._connection = HTTPSConnection(address.hostname or "", address.port, context=context)
        self._headers = {"Accept": "application/json", "Authorization": f"Bearer {token}", "User-Agent": user_agent}
        self._warnings = ServerWarnings()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def on_warning(self, handler: Callable[[str], None]) -> None:
        """Calls `handler` with each warning of the server, once, usually to show it."""
        self._warnings.handler = handler

    async def get(self, resource: Resource[T], key: Key) -> T:
        return decode_response(self.read(object_path(resource, key), {}), resource.model, self._url)

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS, /) -> ObjectList[T]:
        for _ in range(PAGED_ATTEMPTS):
            with suppress(ResourceExpired):
                return self._list(resource, selection, {"limit": str(PAGE)})
        return self._list(resource, selection, {})

    def _list(self, resource: Resource[T], selection: Selector, paging: Mapping[str, str]) -> ObjectList[T]:
        path = collection_path(resource, selection.namespace)
        query = {**selector_query(selection), **paging}
        items: list[T] = []
        while True:
            page = decode_response(self.read(path, query), ListPage, self._url)
            items += (decode_response(bytes(item), resource.model, self._url) for item in page.items or ())
            if not page.metadata.next_page:
                return ObjectList(items, page.metadata.resource_version)
            query["continue"] = page.metadata.next_page

    def read(self, path: str, query: Mapping[str, str]) -> bytes:
        """Returns the body of the response to a GET. Raises ApiError."""
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        try:
            self._connect()
            self._connection.request("GET", target, headers=self._headers)
            response = self._connection.getresponse()
            body = response.read()
        except TimeoutError as error:
            raise unreachable(f"{self._url} did not respond in time: GET {path}") from error
        except OSError as error:
            raise unreachable(f"cannot connect to {self._url}: {error.strerror or error}") from error
        except HTTPException as error:
            raise unavailable(f"{self._url} closed the connection before the response was complete") from error
        self._warnings.take(response.headers.get_all("Warning", []))
        if response.status != _OK:
            raise error_from_body(response.status, response.reason, body, response.headers.get("Retry-After", ""))
        return body

    def _connect(self) -> None:
        if self._connection.sock is None:
            self._connection.timeout = self._at_most(_CONNECT_SECONDS)
            self._connection.connect()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(self._at_most(_RESPONSE_SECONDS))

    def _at_most(self, seconds: float) -> float:
        """Returns the seconds, or those that are left. Raises TimeoutError if none are."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(seconds, left)
