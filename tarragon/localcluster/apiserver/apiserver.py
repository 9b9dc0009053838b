"""The API server: serves the embedded Kubernetes API over HTTP to kubectl and client libraries."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.client.errors import ApiError
from tarragon.kube.codec import encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.paths import ResourcePath, resource_path, segments
from tarragon.localcluster.api.user import User
from tarragon.localcluster.apiserver import discovery
from tarragon.localcluster.apiserver.http import health, responses
from tarragon.localcluster.apiserver.http.accept import Representation, negotiate
from tarragon.localcluster.apiserver.http.connection import DEFAULT_LIMITS, Limits, Server
from tarragon.localcluster.apiserver.http.listener import Listener
from tarragon.localcluster.apiserver.http.resources import Resources
from tarragon.localcluster.apiserver.http.streams import Streams
from tarragon.localcluster.auth.authentication import Authenticator
from tarragon.localcluster.auth.service_account_tokens import TokenAuthority, openid_configuration, published_keys
from tarragon.localcluster.kinds.builtin_kinds import built_in_kinds
from tarragon.localcluster.kinds.openapi import OpenApi, OpenApiDocument
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.computed import NOTHING_COMPUTED, ComputedKinds

_AGGREGATED = frozenset(Representation("APIGroupDiscoveryList", version) for version in ("v2", "v2beta1"))
_OPENAPI_V2 = b"\x0a\x032.0"
"""An OpenAPI v2 document without schemas, in protobuf.

kubectl asks for one when OpenAPI v3 does not know a kind. Without an answer it reports that validation failed, and not
that the server has no such kind.
"""
_OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_KEEP_ALIVE_SECONDS = 120.0
_LINGER_SECONDS = 2.0
"""How long a client may go on sending its body after an early refusal, before the connection is closed."""
_SHUTDOWN_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The address to listen on and the credentials to accept. Port 0 is any free port.

    Without `tls` the server speaks plain HTTP, for tests. `accounts` are the service accounts whose tokens it accepts;
    without them it accepts only `token`.
    """

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    accounts: TokenAuthority | None = None
    limits: Limits = DEFAULT_LIMITS


_BUILT_IN_GROUPS = frozenset(kind.group for kind in built_in_kinds())


class ApiServer:
    """Serves an Api from `start` to `stop`. It neither opens nor closes the Api."""

    def __init__(self, api: Api, clock: Clock, front: ServerConfig, computed: ComputedKinds = NOTHING_COMPUTED) -> None:
        self._api = api
        self._clock = clock
        self._front = front
        self._entrance = Authenticator(front.token, front.accounts)
        self._openapi = OpenApi(api.registry)
        self._streams = Streams(clock)
        self._resources = Resources(api, clock, self._streams, computed)
        self._started = clock.now()
        self._heard = clock.monotonic()
        self._listener: Listener | None = None
        self._runner: web.ServerRunner | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """The address of the started server."""
        return self._url

    @property
    def open_streams(self) -> int:
        """The number of open watches, logs and exec sessions."""
        return self._streams.count

    @property
    def last_request(self) -> float:
        """The monotonic time of the last authenticated request; health checks do not count."""
        return self._heard

    async def start(self) -> None:
        """Listen and serve. Raises TarragonError, with a remedy, when it cannot listen."""
        server = Server(
            self._answer,
            self._front.limits,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            lingering_time=_LINGER_SECONDS,
        )
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        listener = Listener(server, self._front.tls)
        try:
            port = listener.start(self._front.host, self._front.port)
        except OSError as error:
            await runner.cleanup()
            raise _cannot_listen(self._front, error) from error
        self._runner, self._listener = runner, listener
        scheme = "http" if self._front.tls is None else "https"
        host = f"[{self._front.host}]" if ":" in self._front.host else self._front.host
        self._url = f"{scheme}://{host}:{port}"

    async def stop(self) -> None:
        """Stop listening, end every watch with a bookmark, and finish the requests in progress."""
        if self._runner is None or self._listener is None:
            return
        runner, self._runner = self._runner, None
        server = cast("Server", runner.server)
        await self._listener.stop()
        self._streams.end_all()
        await runner.cleanup()
        await server.close_connections()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = segments(request.rel_url.raw_path)
        return responses.pretty(request, await self._plain_answer(request, parts))

    async def _plain_answer(self, request: web.BaseRequest, parts: Sequence[str]) -> web.StreamResponse:
        try:
            if parts and parts[0] in health.PLACES:
                return health.health_check(request, parts)
            user = self._entrance.authenticate(request.headers)
            self._heard = self._clock.monotonic()
            if len(parts) > 3 and parts[0] == "apis":  # noqa: PLR2004 - /apis/GROUP/VERSION/…
                return await self._resource(request, user, resource_path(parts[1], parts[2], parts[3:]))
            if len(parts) > 2 and parts[0] == "api":  # noqa: PLR2004 - /api/v1/…
                return await self._resource(request, user, resource_path("", parts[1], parts[2:]))
            if request.method != "GET":
                raise errors.method_not_allowed()
            return await self._about_the_server(request, parts)
        except ApiError as error:
            return responses.error_response(error)

    async def _resource(self, request: web.BaseRequest, user: User, path: ResourcePath | None) -> web.StreamResponse:
        if path is None:
            raise errors.no_such_resource()
        is_served = self._api.registry.find(path.group, path.version, path.plural) is not None
        if not is_served and path.group not in _BUILT_IN_GROUPS:
            # A real server answers an unknown group in plain text, without a Status; kubectl has a message for that.
            return responses.text("404 page not found\n", status=404)
        return await self._resources.answer(request, user, path)

    async def _about_the_server(self, request: web.BaseRequest, parts: Sequence[str]) -> web.StreamResponse:
        match parts:
            case ["version"] | ["metrics"]:
                return self._about_the_process(parts[0])
            case ["openapi", *place]:
                return await self._openapi_answer(request, place)
            case ["api"] | ["apis"]:
                return self._groups(request, parts[0])
            case ["api", version]:
                return _found(discovery.resource_list(self._api.registry, "", version))
            case ["apis", group]:
                return _found(discovery.group(self._api.registry, group))
            case ["apis", group, version]:
                return _found(discovery.resource_list(self._api.registry, group, version))
            case []:
                return responses.json_value({"paths": sorted(discovery.paths(self._api.registry))})
            case _:
                return _about_tokens(self._front.accounts, self._url, parts)

    def _about_the_process(self, what: str) -> web.StreamResponse:
        if what == "metrics":
            return health.metrics(self._api.object_counts(), self._started.timestamp(), self._streams.count)
        return responses.json_value(discovery.version(self._started))

    def _groups(self, request: web.BaseRequest, root: str) -> web.StreamResponse:
        """Answer /api or /apis, in the aggregated form for clients that accept it: they need no further request."""
        registry = self._api.registry
        form = negotiate(request.headers.get("Accept", ""), _AGGREGATED)
        if form is not None and form in _AGGREGATED:
            names = [""] if root == "api" else discovery.group_names(registry)
            content_type = f"application/json;g=apidiscovery.k8s.io;v={form.version};as={form.kind}"
            whole = encode(discovery.aggregated(registry, names, form.version))
            return responses.with_etag(request, whole, {"Content-Type": content_type, "Vary": "Accept"})
        if root == "apis":
            return responses.json_value(discovery.group_list(registry))
        return responses.json_value(discovery.api_versions(self._url.partition("://")[2]))

    async def _openapi_answer(self, request: web.BaseRequest, place: Sequence[str]) -> web.StreamResponse:
        match place:
            case ["v2"] if "proto-openapi" in request.headers.get("Accept", ""):
                return responses.json_bytes(_OPENAPI_V2, headers={"Content-Type": _OPENAPI_V2_TYPE})
            case ["v3"]:
                return responses.json_value(await self._openapi.index())
            case ["v3", "api", version]:
                document = await self._openapi.document("", version)
            case ["v3", "apis", group, version]:
                document = await self._openapi.document(group, version)
            case _:
                document = None
        if document is None:
            raise errors.no_such_resource()
        return _openapi_document(request, document)


def _about_tokens(accounts: TokenAuthority | None, url: str, parts: Sequence[str]) -> web.StreamResponse:
    """Answer OpenID Connect discovery, with which others verify tokens of service accounts themselves."""
    match parts:
        case [".well-known", "openid-configuration"] if accounts is not None:
            return responses.json_value(openid_configuration(url))
        case ["openid", "v1", "jwks"] if accounts is not None:
            return responses.json_value(published_keys(accounts), "application/jwk-set+json")
        case _:
            raise errors.no_such_resource()


def _openapi_document(request: web.BaseRequest, document: OpenApiDocument) -> web.StreamResponse:
    """Let clients cache the document for as long as the hash in its URL is current."""
    headers = {"ETag": f'"{document.hash}"'}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    if request.query.get("hash") == document.hash:
        headers["Cache-Control"] = "public, immutable"
    return responses.json_bytes(document.data, headers=headers)


def _found(value: Mapping[str, Any] | None) -> web.StreamResponse:
    if value is None:
        raise errors.no_such_resource()
    return responses.json_value(value)


def _cannot_listen(front: ServerConfig, error: OSError) -> TarragonError:
    what = f"cannot listen on {front.host}:{front.port}"
    if error.errno == errno.EADDRINUSE:
        return TarragonError(what, why="another program uses this port", remedy="choose another port, or 0 for any")
    if error.errno == errno.EACCES:
        return TarragonError(what, why="the port is reserved for root", remedy="choose a port above 1023")
    return TarragonError(what, why=error.strerror or str(error), remedy="choose an address of this machine")
