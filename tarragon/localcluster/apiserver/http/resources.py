"""Requests for objects: serves each verb of the API, in the representation that the client accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

from tarragon.base.clock import Clock
from tarragon.client.errors import NotFound, ResourceExpired
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.paths import ResourcePath
from tarragon.localcluster.api.requests import EncodedEvent, Json, RequestTarget, WriteResult
from tarragon.localcluster.api.user import User
from tarragon.localcluster.apiserver.http import bodies, query, streams
from tarragon.localcluster.apiserver.http.accept import JSON, PLAIN, Representation, negotiate
from tarragon.localcluster.apiserver.http.duplicate_fields import with_duplicate_fields
from tarragon.localcluster.apiserver.http.pod_streaming import CONNECTED, PodConnects
from tarragon.localcluster.apiserver.http.responses import (
    in_slices,
    json_bytes,
    json_value,
    list_bytes,
    list_metadata,
    listed,
    with_warnings,
)
from tarragon.localcluster.kinds.registry import ServedKind
from tarragon.localcluster.registry.ambiguous_plurals import namesake_hint, namesake_warnings
from tarragon.localcluster.registry.api import BINDINGS, Api
from tarragon.localcluster.registry.computed import ComputedKinds, list_object
from tarragon.localcluster.tables.columns import SCALE_COLUMNS, columns_of
from tarragon.localcluster.tables.table import TableColumn, TableOptions, metadata_only, table

_VERSIONS = ("v1", "v1beta1")
_OBJECT_FORMS = frozenset(Representation(kind, v) for kind in ("Table", "PartialObjectMetadata") for v in _VERSIONS)
_LIST_FORMS = frozenset(Representation(kind, v) for kind in ("Table", "PartialObjectMetadataList") for v in _VERSIONS)
_WATCH_FORMS = _OBJECT_FORMS

_WATCH_SECONDS = 1800
"""How long a watch lasts when the client sets no timeout."""

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """One request with its user and target."""

    request: web.BaseRequest
    user: User
    target: RequestTarget
    query: Query

    @property
    def agent(self) -> str:
        return self.request.headers.get("User-Agent", "")

    @property
    def is_of_kubectl(self) -> bool:
        return self.agent.startswith("kubectl")

    def form(self, offered: frozenset[Representation]) -> Representation:
        """Return the representation to use. Raises 406."""
        form = negotiate(self.request.headers.get("Accept", ""), offered)
        if form is None:
            message = f"only the following media types are accepted: {JSON}"
            raise errors.failure(406, "NotAcceptable", message)
        return form

    def shape(self, form: Representation) -> TableOptions:
        include = self.query.get("includeObject", "") or "Metadata"
        for known in _INCLUDES:
            if include == known:
                return TableOptions(version=_version(form), include=known)
        raise errors.bad_request(f"includeObject must be one of {', '.join(_INCLUDES)}, not {include!r}")


_INCLUDES: Sequence[Literal["None", "Metadata", "Object"]] = ("None", "Metadata", "Object")


class Resources:
    """Answers every request for a resource of a group-version."""

    def __init__(self, api: Api, clock: Clock, open_streams: streams.Streams, computed: ComputedKinds) -> None:
        self._api = api
        self._computed = computed
        self._clock = clock
        self._streams = open_streams
        self._connects = PodConnects(api, open_streams)

    async def answer(self, request: web.BaseRequest, user: User, path: ResourcePath) -> web.StreamResponse:
        target = self._api.target((path.group, path.version, path.plural), path.namespace, path.name, path.subresource)
        asked = ResourceRequest(request, user, target, request.query)
        _refuse_scope(target, request.method)
        if self._computed.serves(target) or not (target.served.is_stored or target.served.full_name == BINDINGS):
            return await self._compute(asked)
        if target.subresource in CONNECTED:
            return await self._connects.answer(request, target)
        try:
            return await self._answer(asked)
        except NotFound:
            if target.subresource or not (hint := namesake_hint(self._api, target)):
                raise
            raise errors.not_found(target.served, target.name, hint) from None

    async def _answer(self, asked: ResourceRequest) -> web.StreamResponse:
        """Answer a request for a kind that is stored."""
        target = asked.target
        match asked.request.method:
            case "GET":
                return await self._read(asked)
            case "POST":
                return await self._create(asked)
            case "PUT":
                return await self._update(asked)
            case "PATCH":
                return await self._patch(asked)
            case "DELETE":
                return await (self._delete(asked) if target.name else self._delete_collection(asked))
            case _:
                raise errors.method_not_allowed()

    async def _compute(self, asked: ResourceRequest) -> web.StreamResponse:
        """Answer a request for a kind that is not stored."""
        target, answering = asked.target, self._computed.handler_of(asked.target)
        match asked.request.method:
            case "POST" if not target.name or target.subresource:
                _refuse_verb(target.served, "create")
                body = await bodies.object_of(await bodies.sent(asked.request), target.served.kind)
                return json_bytes(encode(await answering.create(target, body, asked.user)), 201)
            case "GET" if target.name:
                _refuse_verb(target.served, "get")
                return json_bytes(self._in_form(asked, encode(await answering.get(target))))
            case "GET":
                _refuse_verb(target.served, "list")
                form = asked.form(_LIST_FORMS)
                items = await answering.list(target, query.list_options(asked.query))
                if form == PLAIN:
                    return json_value(list_object(target, items))
                return await self._listed(asked, form, [encode(item) for item in items], {})
            case _:
                raise errors.method_not_allowed()

    # -------------------------------------------------------------------------------------------------------- read

    async def _read(self, asked: ResourceRequest) -> web.StreamResponse:
        target = asked.target
        if target.subresource == "log":
            return await self._log(asked)
        if query.flag(asked.query, "watch") and not target.name:
            _refuse_verb(target.served, "watch")
            return await self._watch(asked)
        if not target.name:
            _refuse_verb(target.served, "list")
            return await self._list(asked)
        _refuse_verb(target.served, "get")
        return json_bytes(self._in_form(asked, self._api.get(target)))

    async def _list(self, asked: ResourceRequest) -> web.Response:
        form, options = asked.form(_LIST_FORMS), query.list_options(asked.query)
        page = self._api.list(asked.target, options)
        warnings = namesake_warnings(self._api, asked.target, options) if asked.is_of_kubectl else ()
        if form == PLAIN:
            return with_warnings(listed(asked.request, page), warnings)
        return with_warnings(await self._listed(asked, form, page.items, list_metadata(page)), warnings)

    async def _listed(
        self, asked: ResourceRequest, form: Representation, items: Sequence[bytes], metadata: Json
    ) -> web.Response:
        """Return a list as a Table, or as a PartialObjectMetadataList."""
        if form.kind == "Table":
            columns, shape, now = columns_of(asked.target.served), asked.shape(form), self._clock.now()
            whole = table(columns, (), shape, now)
            # Items of a list lack kind and apiVersion; without them kubectl --sort-by shows one empty row.
            kind = {"kind": asked.target.served.kind, "apiVersion": asked.target.served.api_version}
            said = kind if shape.include == "Object" else {}
            whole["rows"] = await in_slices(
                items, lambda part: table(columns, [{**said, **one} for one in part], shape, now)["rows"]
            )
        else:
            version = _version(form)
            whole = _metadata_list(version)
            whole["items"] = await in_slices(items, lambda part: [metadata_only(one, version) for one in part])
        whole["metadata"] = metadata
        return json_bytes(encode(whole))

    async def _watch(self, asked: ResourceRequest) -> web.StreamResponse:
        render = self._renderer(asked, asked.form(_WATCH_FORMS))
        options = query.watch_options(asked.query)
        seconds = query.whole_number(asked.query, "timeoutSeconds") or _WATCH_SECONDS
        try:
            watch = self._api.watch(asked.target, options)
        except ResourceExpired as error:
            # In the stream, as in kube-apiserver. Several client libraries retry a plain 410 in a loop (seen).
            return await streams.single_line(asked.request, streams.error_line(error))
        return await self._streams.watch(
            asked.request, watch, render, seconds=seconds, bookmark_last=options.allow_bookmarks
        )

    async def _log(self, asked: ResourceRequest) -> web.StreamResponse:
        options, limit = query.log_options(asked.query, self._clock.now())
        return await self._streams.log(asked.request, self._api.pod_log(asked.target, options), limit)

    # ------------------------------------------------------------------------------------------------------- write

    async def _create(self, asked: ResourceRequest) -> web.StreamResponse:
        target = asked.target
        if target.name and not target.subresource:
            raise errors.method_not_allowed()
        if not target.subresource:
            _refuse_verb(target.served, "create")
        options = query.write_options(asked.query, asked.agent, "CreateOptions")
        sent = await bodies.sent(asked.request)
        body = await bodies.object_of(sent, target.served.kind)
        return self._written(
            asked, await self._api.create(target, body, with_duplicate_fields(options, sent.data, body))
        )

    async def _update(self, asked: ResourceRequest) -> web.StreamResponse:
        _refuse_verb(asked.target.served, "update")
        options = query.write_options(asked.query, asked.agent, "UpdateOptions")
        sent = await bodies.sent(asked.request)
        body = await bodies.object_of(sent, asked.target.served.kind)
        return self._written(
            asked, await self._api.update(asked.target, body, with_duplicate_fields(options, sent.data, body))
        )

    async def _patch(self, asked: ResourceRequest) -> web.StreamResponse:
        _refuse_verb(asked.target.served, "patch")
        sent = await bodies.sent(asked.request)
        patch = await bodies.patch_of(sent)
        options = query.of_patch(asked.query, query.write_options(asked.query, asked.agent, "PatchOptions"), patch.type)
        return self._written(
            asked, await self._api.patch(asked.target, patch, with_duplicate_fields(options, sent.data, patch.body))
        )

    async def _delete(self, asked: ResourceRequest) -> web.StreamResponse:
        _refuse_verb(asked.target.served, "delete")
        body = await self._options_body(asked)
        options, writing = query.delete_options(asked.query, body, asked.agent)
        return json_bytes((await self._api.delete(asked.target, options, writing)).object)

    async def _delete_collection(self, asked: ResourceRequest) -> web.StreamResponse:
        _refuse_verb(asked.target.served, "deletecollection")
        body = await self._options_body(asked)
        options, writing = query.delete_options(asked.query, body, asked.agent)
        page = await self._api.delete_collection(asked.target, query.list_options(asked.query), options, writing)
        return json_bytes(list_bytes(page))

    async def _options_body(self, asked: ResourceRequest) -> Json:
        data = await bodies.read(asked.request)
        return bodies.decoded(data, asked.request.content_type, "DeleteOptions") if data else {}

    def _written(self, asked: ResourceRequest, written: WriteResult) -> web.Response:
        code = 201 if written.created else 200
        return with_warnings(json_bytes(self._in_form(asked, written.object), code), written.warnings)

    # ------------------------------------------------------------------------------------------------------- forms

    def _in_form(self, asked: ResourceRequest, data: bytes) -> bytes:
        """Return an object in the representation to use; mostly the stored bytes."""
        form = asked.form(_OBJECT_FORMS)
        if form == PLAIN:
            return data
        value = decode(data, dict)
        if form.kind == "PartialObjectMetadata":
            return encode(metadata_only(value, form.version))
        return encode(self._table_of_one(asked, form, value))

    def _table_of_one(self, asked: ResourceRequest, form: Representation, value: Mapping[str, Any]) -> Json:
        whole = table(_columns(asked.target), [value], asked.shape(form), self._clock.now())
        whole["metadata"] = {"resourceVersion": (value.get("metadata") or {}).get("resourceVersion", "")}
        return whole

    def _renderer(self, asked: ResourceRequest, form: Representation) -> streams.Render:
        """Return the function that encodes an event of a watch. Bookmarks stay as they are."""
        if form == PLAIN:
            return _plain_line
        has_sent_columns = False

        def render(event: EncodedEvent) -> bytes:
            nonlocal has_sent_columns
            if event.type == "BOOKMARK":
                return event.line
            value = decode(event.object, dict)
            if form.kind == "PartialObjectMetadata":
                shown: Mapping[str, Any] = metadata_only(value, form.version)
            else:
                shown = self._table_of_one(asked, form, value)
                if has_sent_columns:
                    shown["columnDefinitions"] = None
                has_sent_columns = True
            return EncodedEvent(event.type, event.resource_version, encode(shown)).line

        return render


def _plain_line(event: EncodedEvent) -> bytes:
    return event.line


def _columns(target: RequestTarget) -> Sequence[TableColumn]:
    return SCALE_COLUMNS if target.subresource == "scale" else columns_of(target.served)


def _metadata_list(version: str) -> Json:
    return {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{version}", "items": []}


def _version(form: Representation) -> Literal["v1", "v1beta1"]:
    return "v1beta1" if form.version == "v1beta1" else "v1"


def _refuse_verb(served: ServedKind, verb: str) -> None:
    if verb not in served.verbs:
        raise errors.method_not_allowed()


def _refuse_scope(target: RequestTarget, method: str) -> None:
    """Reject paths whose scope does not fit the kind: only lists and watches span all namespaces."""
    if target.namespace and not target.served.namespaced:
        raise errors.no_such_resource()
    if target.served.namespaced and not target.namespace:
        if target.name:
            raise errors.no_such_resource()
        if method != "GET":
            raise errors.method_not_allowed()
    if not target.name and method in {"PUT", "PATCH"}:
        raise errors.method_not_allowed()
