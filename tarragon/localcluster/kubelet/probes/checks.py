"""HTTP and TCP probes of a local port: one request or one connection. Errors are worded like Go's."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import urljoin, urlsplit

from tarragon.localcluster.kubelet.probes.results import ProbeResult

USER_AGENT = "kube-probe/1.37"
MAX_REDIRECTS = 10
MAX_HEADERS = 200
_SUCCESS = range(200, 400)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """An HTTP request. `host` and `port` are where to connect; the headers are sent as they are."""

    scheme: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}{self.path}"


class HttpFailed(Exception):
    """The connection failed, or the response was not HTTP."""


async def probe_tcp(host: str, port: int) -> ProbeResult:
    """Probe whether the port accepts a connection."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return ProbeResult(succeeded=False, output=dial_error(host, port, error))
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ProbeResult(succeeded=True)


async def probe_http(request: HttpRequest) -> ProbeResult:
    """Probe with a GET request: 200 to 399 is success. Redirects are followed on the same host only."""
    for _ in range(MAX_REDIRECTS):
        try:
            status, location = await _send(request)
        except HttpFailed as error:
            return ProbeResult(succeeded=False, output=f'Get "{request.url}": {error}')
        if status not in _SUCCESS:
            return ProbeResult(succeeded=False, output=f"HTTP probe failed with statuscode: {status}")
        if status not in _REDIRECTS or not location:
            return ProbeResult(succeeded=True)
        try:
            target = urlsplit(urljoin(request.url, location))
            if target.hostname != request.host:
                message = "Probe terminated redirects, Response body: "
                return ProbeResult(succeeded=True, is_warning=True, output=message)
            request = _redirected(request, target.geturl())
        except ValueError:
            message = f'Get "{request.url}": failed to parse Location header "{location}"'
            return ProbeResult(succeeded=False, output=message)
    return ProbeResult(succeeded=False, output=f'Get "{request.url}": stopped after {MAX_REDIRECTS} redirects')


def _redirected(request: HttpRequest, url: str) -> HttpRequest:
    target = urlsplit(url)
    scheme = target.scheme or request.scheme
    port = target.port or (443 if scheme == "https" else 80)
    path = (target.path or "/") + (f"?{target.query}" if target.query else "")
    return replace(request, scheme=scheme, port=port, path=path)


async def _send(request: HttpRequest) -> tuple[int, str]:
    """Send the request; return the status code and the Location header. Raises Unreachable."""
    tls = _unverified() if request.scheme == "https" else None
    try:
        reader, writer = await asyncio.open_connection(request.host, request.port, ssl=tls)
    except ssl.SSLError as error:
        raise HttpFailed(f"tls: {error.reason or error}") from error
    except OSError as error:
        raise HttpFailed(dial_error(request.host, request.port, error)) from error
    try:
        writer.write(_head(request))
        return await _read(reader)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise HttpFailed(str(error) if isinstance(error, ValueError) else "EOF") from error
    finally:
        writer.close()
        writer.transport.abort()  # otherwise TLS waits for the other side's close


def _head(request: HttpRequest) -> bytes:
    defaults = {"host": f"{request.host}:{request.port}", "user-agent": USER_AGENT, "accept": "*/*"}
    defaults["connection"] = "close"
    for name, _ in request.headers:
        defaults.pop(name.lower(), None)
    custom = ((name, value) for name, value in request.headers if value or name.lower() == "host")
    headers = [*defaults.items(), *custom]
    lines = [f"GET {request.path} HTTP/1.1", *(f"{name.title()}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode()


async def _read(reader: asyncio.StreamReader) -> tuple[int, str]:
    status_line = (await reader.readuntil(b"\n")).decode("latin-1").split(None, 2)
    # For example: HTTP/1.1 200
    if len(status_line) < 2 or not status_line[0].startswith("HTTP/") or not status_line[1].isdigit():  # noqa: PLR2004
        raise ValueError(f'malformed HTTP response "{" ".join(status_line)}"')
    location = ""
    for _ in range(MAX_HEADERS):
        name, _, value = (await reader.readuntil(b"\n")).decode("latin-1").partition(":")
        if not name.strip():
            break
        if name.strip().lower() == "location":
            location = value.strip()
    return int(status_line[1]), location


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def dial_error(host: str, port: int, error: OSError) -> str:
    return f"dial tcp {host}:{port}: connect: {next(_causes(error), 'connection refused')}"


def _causes(error: OSError) -> Iterator[str]:
    """The causes of a failed connection; for a name with several addresses, asyncio joins them into one text."""
    if error.errno is not None and error.errno in errno.errorcode and error.strerror:
        go_messages = {errno.ECONNREFUSED: "connection refused", errno.EHOSTUNREACH: "no route to host"}
        yield go_messages.get(error.errno, error.strerror.lower().partition(":")[0])
    if "refused" not in str(error).lower():
        yield str(error)
