"""Runs the actions of probes and lifecycle hooks: exec, HTTP, TCP and gRPC requests, sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tarragon.base.clock import Clock, with_timeout
from tarragon.localcluster.kubelet.base.downward import LOOPBACK
from tarragon.localcluster.kubelet.base.spec import Handler, HttpGetAction, TcpSocketAction
from tarragon.localcluster.kubelet.network.container_ports import ContainerPorts, NoSuchPort, RunContext
from tarragon.localcluster.kubelet.probes import checks
from tarragon.localcluster.kubelet.probes.results import ProbeResult
from tarragon.localcluster.kubelet.streaming import exec_client

HOOK_COMMAND_SECONDS = 366 * 24 * 3600.0
"""The timeout of a hook's command: in effect none, as postStart ends with the container and preStop with the grace."""


class HookFailed(Exception):
    """A hook failed; the message is its output or the error of its request."""


class ActionRunner(Protocol):
    """Runs probe and hook actions for a run of a container."""

    async def probe(self, place: RunContext, handler: Handler, seconds: float) -> ProbeResult:
        """Try a probe once, within `seconds`."""
        ...

    async def run_hook(self, place: RunContext, handler: Handler) -> None:
        """Run a hook to its end. Raises HookFailed."""
        ...


class LocalActionRunner:
    """Runs actions on this machine. `reach` finds the local ports of containers."""

    def __init__(self, reach: ContainerPorts, clock: Clock) -> None:
        self._reach = reach
        self._clock = clock

    async def probe(self, place: RunContext, handler: Handler, seconds: float) -> ProbeResult:
        if handler.exec is not None:
            return await self._run_command(place, handler.exec.command, seconds)
        try:
            return await with_timeout(self._clock, seconds, self._request_check(place, handler))
        except TimeoutError:
            return ProbeResult(succeeded=False, output=self._timeout_message(place, handler))

    async def run_hook(self, place: RunContext, handler: Handler) -> None:
        if handler.sleep is not None:
            return await self._clock.sleep(handler.sleep.seconds)
        if handler.exec is not None:
            finding = await self._run_command(place, handler.exec.command, HOOK_COMMAND_SECONDS)
        elif handler.http_get is None:
            raise HookFailed("invalid handler")
        else:
            finding = await self._request_check(place, handler)
        if not finding.succeeded:
            raise HookFailed(finding.output)
        return None

    async def _run_command(self, place: RunContext, argv: list[str], seconds: float) -> ProbeResult:
        try:
            ended = await exec_client.run(place.folder, argv, seconds=seconds)
        except TimeoutError:
            message = f'command timed out: "{" ".join(argv)}" timed out after {seconds:g}s'
            return ProbeResult(succeeded=False, output=message)
        except (exec_client.CannotConnect, exec_client.CannotExecute, OSError) as error:
            return ProbeResult(succeeded=None, output=str(error))
        return ProbeResult(succeeded=ended.code == 0, output=ended.output.decode(errors="replace"))

    async def _request_check(self, place: RunContext, handler: Handler) -> ProbeResult:
        try:
            return await self._dispatch(place, handler)
        except TimeoutError:
            raise
        except (NoSuchPort, OSError, UnicodeError) as error:  # for example an invalid host name
            return ProbeResult(succeeded=None, output=str(error))

    async def _dispatch(self, place: RunContext, handler: Handler) -> ProbeResult:
        if handler.http_get is not None:
            return await checks.probe_http(self._http_request(place, handler.http_get))
        socket = _socket(handler)
        if socket is not None:
            return await checks.probe_tcp(socket.host or LOOPBACK, self._reach.local_port(place, socket.port))
        return ProbeResult(succeeded=None, output="missing probe handler")

    def _http_request(self, place: RunContext, action: HttpGetAction) -> checks.HttpRequest:
        return checks.HttpRequest(
            scheme=action.scheme.lower() or "http",
            host=action.host or LOOPBACK,
            port=self._reach.local_port(place, action.port),
            path=action.path if action.path.startswith("/") else f"/{action.path}",
            headers=tuple((header.name, header.value) for header in action.http_headers),
        )

    def _timeout_message(self, place: RunContext, handler: Handler) -> str:
        if handler.http_get is not None:
            url = self._http_request(place, handler.http_get).url
            return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
        socket = _socket(handler) or TcpSocketAction()
        return f"dial tcp {socket.host or LOOPBACK}:{self._reach.local_port(place, socket.port)}: i/o timeout"


def _socket(handler: Handler) -> TcpSocketAction | None:
    """The port that the probe connects to. Of a gRPC health check only that is done, which pod/ignored.py reports."""
    if handler.grpc is not None:
        return TcpSocketAction(port=handler.grpc.port)
    return handler.tcp_socket


RecordEvent = Callable[[str, str, str], None]
"""Records an event about the pod: type, reason, message."""
