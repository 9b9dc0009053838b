"""Request bodies: read within limits, decoded from JSON, YAML or protobuf, rejected in kube-apiserver's words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
import yaml
from aiohttp import web

from tarragon.kube.codec import decode_shallow
from tarragon.kube.json_depth import MAX_MANIFEST_DEPTH, is_depth_within
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, PatchBody, PatchType
from tarragon.localcluster.apiserver.http import protobuf
from tarragon.localcluster.apiserver.http.connection import Connection

T = TypeVar("T")

LIMIT = 3 * 1024 * 1024
"""Maximum size of a body in bytes, as in kube-apiserver."""

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})
_LONG = 16 * 1024
"""From this size in bytes, YAML and protobuf are decoded in a thread: it takes about 50 ms or longer."""
_ACCEPTED = ("application/json", "application/yaml")
_ACCEPTED_PATCHES = tuple(each.value for each in PatchType)


async def read(request: web.BaseRequest) -> bytes:
    """Return the whole body. Raises 413 as soon as it is known to be too large, 504 when it arrives too slowly."""
    if request.content.is_eof():  # a short body comes with the headers
        if len(data := request.content.read_nowait()) > LIMIT:  # compressed, it was shorter
            raise _too_large()
        return data
    limits = cast("Connection", request.protocol).limits
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _whole(request)
    except TimeoutError:
        raise errors.timed_out() from None


async def _whole(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > LIMIT:
        raise _too_large()
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # no part of the response itself has been sent
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > LIMIT:
            raise _too_large()
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


@dataclass(frozen=True, slots=True)
class RawBody:
    """An undecoded body."""

    data: bytes
    content_type: str


async def sent(request: web.BaseRequest) -> RawBody:
    """Return the request's body. Raises 413 and 504."""
    return RawBody(await read(request), request.content_type)


async def object_of(body: RawBody, kind: str) -> Json:
    """Return the object in a body. `kind` is the kind that the path expects."""
    return await decode_off_loop(partial(decoded, kind=kind), body.data, body.content_type)


async def patch_of(body: RawBody) -> PatchBody:
    return await decode_off_loop(decoded_patch, body.data, body.content_type)


async def decode_off_loop(read: Callable[[bytes, str], T], data: bytes, content_type: str) -> T:
    """Return the result of `read` on a body, in a thread if that takes long. Raises what `read` raises."""
    if len(data) < _LONG or content_type == "application/json":
        return read(data, content_type)
    return await asyncio.to_thread(read, data, content_type)


def decoded(data: bytes, content_type: str, kind: str) -> Json:
    """Return the object in a body. `kind` is the kind that the path expects, for error messages."""
    if content_type in {"application/json", "application/octet-stream", ""}:
        value = _json(data, kind)
    elif content_type in YAML_TYPES:
        value = _yaml(data, kind)
    elif content_type == protobuf.MEDIA_TYPE:
        value = _protobuf(data, kind)
    else:
        raise errors.unsupported_media_type(_ACCEPTED)
    if not isinstance(value, dict):
        raise _unrecognized(kind, f"json: cannot unmarshal {_word(value)} into an object")
    return value


def decoded_patch(data: bytes, content_type: str) -> PatchBody:
    try:
        kind = PatchType(content_type)
    except ValueError:
        raise errors.unsupported_media_type(_ACCEPTED_PATCHES) from None
    try:
        value = _yaml_value(data) if kind is PatchType.APPLY else _json_value(data)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        why = "invalid JSON patch" if kind is PatchType.MERGE else f"error decoding patch: {error}"
        raise errors.bad_request(why) from None
    expected = list if kind is PatchType.JSON else dict
    if not isinstance(value, expected):
        wanted = "a list of operations" if expected is list else "an object"
        raise errors.bad_request(f"error decoding patch: expected {wanted}, not {_word(value)}")
    return PatchBody(kind, value)


def _json(data: bytes, kind: str) -> Any:
    try:
        return _json_value(data)
    except msgspec.DecodeError as error:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {error}") from None


def _json_value(data: bytes) -> Any:
    """Raises msgspec.DecodeError, and BadRequest for a value that is nested too deeply to be stored."""
    if not is_depth_within(data, MAX_MANIFEST_DEPTH):
        raise errors.nested_too_deeply()
    return decode_shallow(data)


def _yaml(data: bytes, kind: str) -> Any:
    try:
        return _yaml_value(data)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unrecognized(kind, f"error converting YAML to JSON: {error}") from None


def _protobuf(data: bytes, kind: str) -> Any:
    try:
        value = protobuf.decoded(data)
    except protobuf.Malformed as error:
        raise _unrecognized(kind, str(error)) from None
    if value is None:
        why = (
            "Kubernetes has no protobuf encoding of this kind; with kubectl, add "
            "`--dry-run=client -o yaml | kubectl create -f -`"
        )
        raise errors.unsupported_media_type(_ACCEPTED, why=why)
    return value


def _unrecognized(kind: str, why: str) -> Exception:
    return errors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {why}")


def _too_large() -> Exception:
    return errors.failure(
        413, "RequestEntityTooLarge", f"Request entity too large: limit is {LIMIT} bytes", {"causes": []}
    )


def _word(value: Any) -> str:
    names = {list: "array", dict: "object", str: "string", bool: "bool", type(None): "null"}
    return names.get(type(value), "number")


class _Loader(yaml.SafeLoader):
    """Loads the part of YAML that JSON can express: times stay text, and aliases, which could expand, are rejected."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", event.start_mark)
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _yaml_value(data: bytes) -> Any:
    # JSON is YAML too, and the JSON parser is 100 times faster. kubectl sends apply patches as JSON.
    if data[:1] in {b"{", b"["}:
        try:
            return _json_value(data)
        except msgspec.DecodeError:
            pass
    # JSON has text keys only: `1: x` becomes "1".
    return _with_text_keys(yaml.load(data, _Loader))  # noqa: S506 - a SafeLoader


def _with_text_keys(value: Any) -> Any:
    match value:
        case dict():
            return {_key(name): _with_text_keys(child) for name, child in value.items()}
        case list():
            return [_with_text_keys(child) for child in value]
        case str():
            return _text(value)
        case bytes() | set():
            raise yaml.YAMLError(f"{type(value).__name__} cannot be represented in JSON")
        case _:
            return value


def _key(name: Any) -> str:
    if isinstance(name, bool):
        return "true" if name else "false"
    return _text(name) if isinstance(name, str) else str(name)


def _text(value: str) -> str:
    """Reject half a surrogate pair: YAML can escape it, JSON in UTF-8 cannot contain it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise yaml.YAMLError(f"{value!r} has half a surrogate pair") from None
    return value
