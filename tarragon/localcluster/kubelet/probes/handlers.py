"""Does what a probe or a hook says: a command in the container, a request, a connection, a pause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tarragon.base.clock import Clock, within
from tarragon.localcluster.kubelet.base.downward import HOST
from tarragon.localcluster.kubelet.base.spec import Handler, HttpGet
from tarragon.localcluster.kubelet.network.address_translation import NoSuchPort, Place, Reach
from tarragon.localcluster.kubelet.probes import checks, grpc_health
from tarragon.localcluster.kubelet.probes.results import Finding
from tarragon.localcluster.kubelet.streaming import exec_client

LONGEST_COMMAND = 366 * 24 * 3600.0
"""Of a hook: nothing but the container's end stops one after the start, one before the end has its grace."""


class HookFailed(Exception):
    """With its reason: what a command has said, or why nobody answered."""


class Handlers(Protocol):
    """What is done for the run of a container."""

    async def check(self, place: Place, handler: Handler, seconds: float) -> Finding:
        """One try of a probe that takes at most this long."""
        ...

    async def carry_out(self, place: Place, handler: Handler) -> None:
        """A hook, to its end. Raises HookFailed."""
        ...


class LocalHandlers:
    """`reach` finds the ports of containers on this machine."""

    def __init__(self, reach: Reach, clock: Clock) -> None:
        self._reach = reach
        self._clock = clock

    async def check(self, place: Place, handler: Handler, seconds: float) -> Finding:
        if handler.exec is not None:
            return await self._command(place, handler.exec.command, seconds)
        try:
            return await within(self._clock, seconds, self._asked(place, handler))
        except TimeoutError:
            return Finding(is_well=False, words=self._too_late(place, handler, seconds))

    async def carry_out(self, place: Place, handler: Handler) -> None:
        if handler.sleep is not None:
            return await self._clock.sleep(handler.sleep.seconds)
        if handler.exec is not None:
            finding = await self._command(place, handler.exec.command, LONGEST_COMMAND)
        elif handler.http_get is None:
            raise HookFailed("invalid handler")
        else:
            finding = await self._asked(place, handler)
        if not finding.is_well:
            raise HookFailed(finding.words)
        return None

    async def _command(self, place: Place, argv: list[str], seconds: float) -> Finding:
        try:
            ended = await exec_client.run(place.folder, argv, seconds=seconds)
        except TimeoutError:
            words = f'command timed out: "{" ".join(argv)}" timed out after {seconds:g}s'
            return Finding(is_well=False, words=words)
        except (exec_client.CannotEnter, exec_client.CannotExecute, OSError) as error:
            return Finding(is_well=None, words=str(error))
        return Finding(is_well=ended.code == 0, words=ended.output.decode(errors="replace"))

    async def _asked(self, place: Place, handler: Handler) -> Finding:
        try:
            return await self._question(place, handler)
        except TimeoutError:
            raise
        except (NoSuchPort, OSError, UnicodeError) as error:  # as of a host that is no name
            return Finding(is_well=None, words=str(error))

    async def _question(self, place: Place, handler: Handler) -> Finding:
        if handler.http_get is not None:
            return await checks.http(self._request(place, handler.http_get))
        if handler.tcp_socket is not None:
            port = self._reach.port(place, handler.tcp_socket.port)
            return await checks.tcp(handler.tcp_socket.host or HOST, port)
        if handler.grpc is not None:
            port = self._reach.port(place, handler.grpc.port)
            return await grpc_health.check(HOST, port, handler.grpc.service)
        return Finding(is_well=None, words="missing probe handler")

    def _request(self, place: Place, said: HttpGet) -> checks.Request:
        return checks.Request(
            scheme=said.scheme.lower() or "http",
            host=said.host or HOST,
            # Another host's ports are nobody's here.
            port=self._reach.port(place, said.port),
            path=said.path if said.path.startswith("/") else f"/{said.path}",
            headers=tuple((header.name, header.value) for header in said.http_headers),
        )

    def _too_late(self, place: Place, handler: Handler, seconds: float) -> str:
        if handler.http_get is not None:
            url = self._request(place, handler.http_get).url
            return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
        if handler.tcp_socket is not None:
            port = self._reach.port(place, handler.tcp_socket.port)
            return f"dial tcp {handler.tcp_socket.host or HOST}:{port}: i/o timeout"
        return f"timeout: health rpc did not complete within {seconds:g}s"


Tell = Callable[[str, str, str], None]
"""An event about the pod: type, reason, message."""
