"""Encoding of stored objects: encoded once per change, and rewritten without decoding where only a version differs.

Stored bytes begin with apiVersion, kind and metadata; metadata begins with the names, the uid and the resourceVersion.
The first `"resourceVersion":` in the bytes is therefore the object's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.kinds.resource import ServedKind

Json = dict[str, Any]

_OPENING = b'{"apiVersion":"'
_VERSION = b'"resourceVersion":"'
_AFTER_KIND = b',"metadata":'
_MAX_VERSION = str(2**64 - 1)
_LEADING_FIELDS = ("name", "generateName", "namespace", "uid", "resourceVersion")


def encode_stored(served: ServedKind, thing: Mapping[str, Any], revision: int) -> bytes:
    """The bytes to store: in the storage version, with the given revision (0 for no revision)."""
    metadata = thing["metadata"]
    head = {name: metadata[name] for name in _LEADING_FIELDS[:-1] if metadata.get(name)}
    if revision:
        head["resourceVersion"] = str(revision)
    rest = {name: value for name, value in metadata.items() if name not in _LEADING_FIELDS}
    group, version = served.group, served.storage_version
    ordered = {
        "apiVersion": f"{group}/{version}" if group else version,
        "kind": served.kind,
        "metadata": {**head, **rest},
        **{name: value for name, value in thing.items() if name not in {"apiVersion", "kind", "metadata"}},
    }
    return encode(ordered)


def encode_in_version(body: bytes, served: ServedKind) -> bytes:
    """The object in the requested version. Only apiVersion is rewritten (conversion None), except for views."""
    if served.view is not None:
        return encode(served.view.from_stored(decode(body, dict)))
    if not served.is_custom:
        return body
    if _is_older_than_its_schema(body, served):
        body = _reshaped(body, served)
    end = body.index(b'"', len(_OPENING))
    wanted = served.api_version.encode()
    return body if body[len(_OPENING) : end] == wanted else b"%b%b%b" % (_OPENING, wanted, body[end:])


def has_current_shape(body: bytes, served: ServedKind) -> bool:
    """Whether a read returns the bytes that are stored. If not, any write of the object stores its new shape."""
    return not _is_older_than_its_schema(body, served) or _reshaped(body, served) == body


def _is_older_than_its_schema(body: bytes, served: ServedKind) -> bool:
    return served.is_custom and bool(served.schema_changed_at) and _revision(body) < served.schema_changed_at


def _revision(body: bytes) -> int:
    start = body.find(_VERSION)
    if start < 0:
        return 0
    start += len(_VERSION)
    return int(body[start : body.index(b'"', start)])


def _reshaped(body: bytes, served: ServedKind) -> bytes:
    """Prune and default the object, as kube-apiserver does when it reads an object stored under an older schema."""
    thing = decode(body, dict)
    if served.schema is not None:
        served.schema.prune(thing)
        served.schema.default(thing)
    return encode(thing)


def encode_list_item(body: bytes, served: ServedKind) -> bytes:
    """The object as an item of a list. As in kube-apiserver, items of built-in kinds have no apiVersion and kind."""
    converted = encode_in_version(body, served)
    return converted if served.is_custom else b"{" + converted[converted.index(_AFTER_KIND) + 1 :]


def parse_resource_version(text: str) -> int | None:
    """The number of a resourceVersion, None if Go's strconv.ParseUint rejects the text."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    # int() raises for more than 4,300 digits.
    return int(digits) if len(digits) <= len(_MAX_VERSION) and int(digits) <= int(_MAX_VERSION) else None


def with_revision(body: bytes, old: int, new: int) -> bytes:
    """The bytes with another revision."""
    return body.replace(b'"resourceVersion":"%d"' % old, b'"resourceVersion":"%d"' % new, 1)


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal. Python's == would hold for 1 and true."""
    if left != right:
        return False
    if isinstance(left, dict):
        return all(json_equal(value, right[name]) for name, value in left.items())
    if isinstance(left, list):
        return all(json_equal(one, other) for one, other in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool)
