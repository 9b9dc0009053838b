"""exec, attach and port-forward: negotiates the protocol that a connection is upgraded to, and serves it.

Used by the API server and by the port of a `tarragon node`. Today's clients speak WebSocket, which a kube-apiserver
translates into SPDY for the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tarragon.localcluster.api import errors
from tarragon.localcluster.apiserver.http import responses
from tarragon.localcluster.apiserver.http.byte_streams import LARGEST_MESSAGE, Tunnel, Upgraded
from tarragon.localcluster.apiserver.http.channels import CLOSING_SECONDS, OFFERED, Channels
from tarragon.localcluster.apiserver.http.exec_clients import (
    RequestedStreams,
    SessionClient,
    SpdyClient,
    WebSocketClient,
)
from tarragon.localcluster.apiserver.http.exec_session import SUCCESS, converse, failed, status_of
from tarragon.localcluster.apiserver.http.forwarding import Dial, forward_channels, forward_spdy
from tarragon.localcluster.apiserver.http.streams import Streams
from tarragon.localcluster.kubelet.streaming import exec_client
from tarragon.localcluster.kubelet.streaming.exec_client import (
    CannotConnect,
    CannotExecute,
    ContainerProcess,
    ExecCommand,
)
from tarragon.localcluster.kubelet.streaming.pod_access import NotRunning, PodAccess

SPDY = "SPDY/3.1"
PROTOCOL_HEADER = "X-Stream-Protocol-Version"
REMOTE_COMMAND = "v4.channel.k8s.io"
"""The exec protocol over SPDY. Every client since Kubernetes 1.4 offers it."""
PORT_FORWARD = "portforward.k8s.io"
TUNNELLED = f"{SPDY}+{PORT_FORWARD}"
FORWARDED = tuple(each for each in OFFERED if each.name.startswith("v4."))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """`argv` is None for attach. A request for neither input nor output is rejected."""

    pod: Mapping[str, Any]
    container: str
    argv: Sequence[str] | None
    wanted: RequestedStreams


class Connects:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    # ------------------------------------------------------------------------------------------------- exec and attach

    async def execute(self, request: web.BaseRequest, door: PodAccess, asked: ExecRequest) -> web.StreamResponse:
        """Run the command, or attach, until it ends. Raises ApiError when that cannot begin."""
        wanted = asked.wanted
        if not (wanted.stdin or wanted.stdout or wanted.stderr):
            raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
        if _upgrade(request) == "websocket":
            line = await Channels.open(request)
            await self._hold(request, _execution(WebSocketClient(line, wanted), door, asked))
            return line.socket
        _negotiate(request, REMOTE_COMMAND)
        try:
            door.run(asked.pod, asked.container)
        except NotRunning as error:  # the last chance for an HTTP status; plain text, as from a kubelet
            return responses.text(str(error), status=500)
        wire = await Upgraded.switch(request, SPDY, {PROTOCOL_HEADER: REMOTE_COMMAND})
        await self._hold(request, _execution(SpdyClient(wire, wanted), door, asked))
        return wire.response

    # ---------------------------------------------------------------------------------------------------- port-forward

    async def forward(self, request: web.BaseRequest, dial: Dial) -> web.StreamResponse:
        """Forward connections until the client leaves. Raises ApiError when that cannot begin."""
        if _upgrade(request) != "websocket":
            _negotiate(request, PORT_FORWARD)
            wire = await Upgraded.switch(request, SPDY, {PROTOCOL_HEADER: PORT_FORWARD})
            await self._hold(request, forward_spdy(wire, dial))
            return wire.response
        if TUNNELLED in _listed(request, "Sec-WebSocket-Protocol"):
            socket = web.WebSocketResponse(
                protocols=(TUNNELLED,), max_msg_size=LARGEST_MESSAGE, timeout=CLOSING_SECONDS, compress=False
            )
            await socket.prepare(request)
            await self._hold(request, forward_spdy(Tunnel(socket), dial))
            with suppress(ConnectionError):
                await socket.close()
            return socket
        ports = _ports(request)
        line = await Channels.open(request, FORWARDED)
        await self._hold(request, forward_channels(line, ports, dial))
        return line.socket

    async def _hold(self, request: web.BaseRequest, work: Coroutine[object, object, None]) -> None:
        with suppress(ConnectionError):
            await self._streams.upgraded(request, work)


async def _execution(client: SessionClient, door: PodAccess, asked: ExecRequest) -> None:
    async with client:
        try:
            status = await _outcome(client, door, asked)
        except asyncio.CancelledError:  # kubectl takes a missing status for success
            await client.finish(failed("the server is stopping, and the command was ended"))
            raise
        if status is not None:
            await client.finish(status)


async def _outcome(client: SessionClient, door: PodAccess, asked: ExecRequest) -> Mapping[str, Any] | None:
    """Return the Status that ends the stream; None when the client has left."""
    try:
        run = door.run(asked.pod, asked.container)
        async with await _entered(run, asked) as process:
            code = await converse(client, process, asked.wanted)
    except (NotRunning, CannotConnect) as error:
        return failed(f"unable to upgrade connection: {error}")
    except CannotExecute as error:
        return failed(f"error executing command in container: failed to exec in container: {error}")
    if code is None:
        return None
    return status_of(code) if asked.argv is not None else SUCCESS


async def _entered(run: Path, asked: ExecRequest) -> ContainerProcess:
    if asked.argv is None:
        return await exec_client.attach(run)
    return await exec_client.start(
        run, ExecCommand(argv=asked.argv, has_stdin=asked.wanted.stdin, tty=asked.wanted.tty)
    )


# --------------------------------------------------------------------------------------------------------- negotiation


def _upgrade(request: web.BaseRequest) -> str:
    """Return the protocol to upgrade to. Raises BadRequest for any other than WebSocket and SPDY."""
    upgrade = request.headers.get("Upgrade", "").lower()
    wants = "upgrade" in request.headers.get("Connection", "").lower()
    if not wants or upgrade not in {"websocket", SPDY.lower()}:
        raise errors.bad_request("Upgrade request required")
    return upgrade


def _listed(request: web.BaseRequest, header: str) -> list[str]:
    lines = request.headers.getall(header, [])
    return [word.strip() for line in lines for word in line.split(",") if word.strip()]


def _negotiate(request: web.BaseRequest, protocol: str) -> None:
    """Raises Forbidden unless the client offers this protocol over SPDY."""
    offered = _listed(request, PROTOCOL_HEADER)
    if protocol not in offered:
        words = f"unable to negotiate protocol: client supports [{' '.join(offered)}], server accepts [{protocol}]"
        raise errors.failure(403, "Forbidden", f"unable to upgrade: {words}")


def _ports(request: web.BaseRequest) -> list[int]:
    """Return the ports of a port-forward over WebSocket channels, which the URL has to name."""
    said = [word for value in request.query.getall("ports", []) for word in value.split(",")]
    if not said:
        raise errors.bad_request('query parameter "ports" is required')
    if wrong := [word for word in said if not (word.isdigit() and 0 < int(word) < 65536)]:  # noqa: PLR2004
        raise errors.bad_request(f'query parameter "ports" cannot be parsed: {wrong[0]!r} is not a port')
    return [int(word) for word in said]
