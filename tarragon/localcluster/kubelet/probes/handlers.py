"""Runs the actions of probes and lifecycle hooks: exec, HTTP, TCP and gRPC requests, sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tarragon.base.clock import Clock, within
from tarragon.localcluster.kubelet.base.downward import HOST
from tarragon.localcluster.kubelet.base.spec import Handler, HttpGet, TcpSocket
from tarragon.localcluster.kubelet.network.address_translation import NoSuchPort, Place, Reach
from tarragon.localcluster.kubelet.probes import checks
from tarragon.localcluster.kubelet.probes.results import Finding
from tarragon.localcluster.kubelet.streaming import exec_client

LONGEST_COMMAND = 366 * 24 * 3600.0
"""The timeout of a hook's command: in effect none, as postStart ends with the container and preStop with the grace."""


class HookFailed(Exception):
    """A hook failed; the message is its output or the error of its request."""


class Handlers(Protocol):
    """Runs probe and hook actions for a run of a container."""

    async def check(self, place: Place, handler: Handler, seconds: float) -> Finding:
        """Try a probe once, within `seconds`."""
        ...

    async def carry_out(self, place: Place, handler: Handler) -> None:
        """Run a hook to its end. Raises HookFailed."""
        ...


class LocalHandlers:
    """Runs actions on this machine. `reach` finds the local ports of containers."""

    def __init__(self, reach: Reach, clock: Clock) -> None:
        self._reach = reach
        self._clock = clock

    async def check(self, place: Place, handler: Handler, seconds: float) -> Finding:
        if handler.exec is not None:
            return await self._run_command(place, handler.exec.command, seconds)
        try:
            return await within(self._clock, seconds, self._request_check(place, handler))
        except TimeoutError:
            return Finding(is_well=False, words=self._timeout_message(place, handler))

    async def carry_out(self, place: Place, handler: Handler) -> None:
        if handler.sleep is not None:
            return await self._clock.sleep(handler.sleep.seconds)
        if handler.exec is not None:
            finding = await self._run_command(place, handler.exec.command, LONGEST_COMMAND)
        elif handler.http_get is None:
            raise HookFailed("invalid handler")
        else:
            finding = await self._request_check(place, handler)
        if not finding.is_well:
            raise HookFailed(finding.words)
        return None

    async def _run_command(self, place: Place, argv: list[str], seconds: float) -> Finding:
        try:
            ended = await exec_client.run(place.folder, argv, seconds=seconds)
        except TimeoutError:
            message = f'command timed out: "{" ".join(argv)}" timed out after {seconds:g}s'
            return Finding(is_well=False, words=message)
        except (exec_client.CannotEnter, exec_client.CannotExecute, OSError) as error:
            return Finding(is_well=None, words=str(error))
        return Finding(is_well=ended.code == 0, words=ended.output.decode(errors="replace"))

    async def _request_check(self, place: Place, handler: Handler) -> Finding:
        try:
            return await self._dispatch(place, handler)
        except TimeoutError:
            raise
        except (NoSuchPort, OSError, UnicodeError) as error:  # for example an invalid host name
            return Finding(is_well=None, words=str(error))

    async def _dispatch(self, place: Place, handler: Handler) -> Finding:
        if handler.http_get is not None:
            return await checks.http(self._http_request(place, handler.http_get))
        socket = _socket(handler)
        if socket is not None:
            return await checks.tcp(socket.host or HOST, self._reach.port(place, socket.port))
        return Finding(is_well=None, words="missing probe handler")

    def _http_request(self, place: Place, action: HttpGet) -> checks.Request:
        return checks.Request(
            scheme=action.scheme.lower() or "http",
            host=action.host or HOST,
            port=self._reach.port(place, action.port),
            path=action.path if action.path.startswith("/") else f"/{action.path}",
            headers=tuple((header.name, header.value) for header in action.http_headers),
        )

    def _timeout_message(self, place: Place, handler: Handler) -> str:
        if handler.http_get is not None:
            url = self._http_request(place, handler.http_get).url
            return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
        socket = _socket(handler) or TcpSocket()
        return f"dial tcp {socket.host or HOST}:{self._reach.port(place, socket.port)}: i/o timeout"


def _socket(handler: Handler) -> TcpSocket | None:
    """The port that the probe connects to. Of a gRPC health check only that is done, which pod/ignored.py reports."""
    if handler.grpc is not None:
        return TcpSocket(port=handler.grpc.port)
    return handler.tcp_socket


Tell = Callable[[str, str, str], None]
"""Records an event about the pod: type, reason, message."""
