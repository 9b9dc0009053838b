"""The listening socket of an HTTP server, with limits on connections and on each TLS handshake."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl

import structlog

from tarragon.localcluster.apiserver.http.connection import Server

_log = structlog.get_logger(__name__)

_BACKLOG = 128
_RETRY_SECONDS = 1.0
"""The pause after running out of descriptors or memory for another connection, as in asyncio."""


class Listener:
    """Accepts connections for a server from `start` to `stop`.

    asyncio's own listener accepts without limit, and aiohttp's sites have no timeout for handshakes. At the limit of
    connections new clients wait in the kernel's queue, as with Go's LimitListener. The limit is at most half of the
    file descriptors of the process: the other half is for the store and for pods.
    """

    def __init__(self, server: Server, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._tls = tls
        self._handshake_seconds = None if tls is None else server.limits.header_seconds
        self._most = min(server.limits.connections, _half_of_all_descriptors())
        self._open = 0
        self._socket: socket.socket | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    def start(self, host: str, port: int) -> int:
        """Listen on the address `host` and return the port. Port 0 is any free port. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._resume()
        return int(self._socket.getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, and cancel unfinished handshakes. Established connections belong to the server."""
        if self._socket is None:
            return
        self._pause()
        self._socket.close()
        self._socket = None
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _resume(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    def _pause(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BACKLOG):
            if self._open >= self._most:
                self._pause()
                _log.warning("the limit of connections is reached", connections=self._most)
                return
            try:
                line, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause()
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._resume)
                _log.warning("no connection can be accepted", error=error.strerror, retry_seconds=_RETRY_SECONDS)
                return
            self._open += 1
            handshake = asyncio.create_task(self._welcome(line))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _welcome(self, line: socket.socket) -> None:
        line.setblocking(False)
        try:
            _, connection = await asyncio.get_running_loop().connect_accepted_socket(
                self._server, line, ssl=self._tls, ssl_handshake_timeout=self._handshake_seconds
            )
        except OSError as error:
            # The client speaks no TLS, does not trust our authority, or takes too long. Every server sees these.
            _log.debug("a handshake failed", error=str(error))
            self._left()
        except BaseException:
            self._left()
            raise
        else:
            connection.disconnected.add_done_callback(self._left)

    def _left(self, _: object = None) -> None:
        self._open -= 1
        if self._open == self._most - 1:
            self._resume()


def _half_of_all_descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(1, soft // 2)
