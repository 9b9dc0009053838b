"""The streaming subresources of pods: `exec`, `attach` and `portforward`."""

from __future__ import annotations

from aiohttp import web

from tarragon.localcluster.api import errors
from tarragon.localcluster.api.container_selection import requested_container
from tarragon.localcluster.api.requests import RequestTarget
from tarragon.localcluster.apiserver.http.exec_clients import RequestedStreams
from tarragon.localcluster.apiserver.http.query import Query, flag
from tarragon.localcluster.apiserver.http.streaming import Connects, ExecRequest
from tarragon.localcluster.apiserver.http.streams import Streams
from tarragon.localcluster.kubelet.streaming.pod_access import PodAccess
from tarragon.localcluster.registry.api import Api

CONNECTED = frozenset({"exec", "attach", "portforward"})
METHODS = frozenset({"GET", "POST"})


class PodConnects:
    def __init__(self, api: Api, streams: Streams) -> None:
        self._api = api
        self._connects = Connects(streams)

    async def answer(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        """Serve the session. Raises ApiError before the connection is upgraded."""
        if request.method not in METHODS:
            raise errors.method_not_allowed()
        if target.subresource == "portforward":
            pod, door = self._api.pod_streams(target)
            return await self._connects.forward(request, lambda port: door.dial(pod, port))
        door, asked = self._exec_request(request, target)
        return await self._connects.execute(request, door, asked)

    def _exec_request(self, request: web.BaseRequest, target: RequestTarget) -> tuple[PodAccess, ExecRequest]:
        argv = request.query.getall("command", []) if target.subresource == "exec" else None
        pod = self._api.pod(target)
        container = requested_container(pod, request.query.get("container", ""))
        pod, door = self._api.pod_streams(target)
        return door, ExecRequest(pod=pod, container=container, argv=argv, wanted=_wanted(request.query))


def _wanted(asked: Query) -> RequestedStreams:
    """Return the requested streams. stdout and stderr are requested by default."""
    tty = flag(asked, "tty")
    return RequestedStreams(
        stdin=flag(asked, "stdin"),
        stdout=flag({"stdout": "true", **asked}, "stdout"),
        stderr=flag({"stderr": "true", **asked}, "stderr") and not tty,
        tty=tty,
    )
