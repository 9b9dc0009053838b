"""Encoding of stored objects: encoded once per change, and rewritten without decoding where only a version differs.

Stored bytes begin with apiVersion, kind and metadata; metadata begins with the names, the uid and the resourceVersion.
The first `"resourceVersion":` in the bytes is therefore the object's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.kinds.resource import Served

Json = dict[str, Any]

_OPENING = b'{"apiVersion":"'
_VERSION = b'"resourceVersion":"'
_AFTER_KIND = b',"metadata":'
_MAX_VERSION = str(2**64 - 1)
_LEADING_FIELDS = ("name", "generateName", "namespace", "uid", "resourceVersion")


def encoded(served: Served, thing: Mapping[str, Any], revision: int) -> bytes:
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


def in_version(body: bytes, served: Served) -> bytes:
    """The object in the requested version. Only apiVersion is rewritten (conversion None), except for views."""
    if served.view is not None:
        return encode(served.view.shown(decode(body, dict)))
    if not served.is_custom:
        return body
    if _is_older_than_its_schema(body, served):
        body = _reshaped(body, served)
    end = body.index(b'"', len(_OPENING))
    wanted = served.api_version.encode()
    return body if body[len(_OPENING) : end] == wanted else b"%b%b%b" % (_OPENING, wanted, body[end:])


def has_kept_its_shape(body: bytes, served: Served) -> bool:
    """Whether a read returns the bytes that are stored. If not, any write of the object stores its new shape."""
    return not _is_older_than_its_schema(body, served) or _reshaped(body, served) == body


def _is_older_than_its_schema(body: bytes, served: Served) -> bool:
    return served.is_custom and bool(served.reshaped_since) and _revision(body) < served.reshaped_since


def _revision(body: bytes) -> int:
    start = body.find(_VERSION)
    if start < 0:
        return 0
    start += len(_VERSION)
    return int(body[start : body.index(b'"', start)])


def _reshaped(body: bytes, served: Served) -> bytes:
    """Prune and default the object, as kube-apiserver does when it reads an object stored under an older schema."""
    thing = decode(body, dict)
    if served.schema is not None:
        served.schema.prune(thing)
        served.schema.default(thing)
    return encode(thing)


def in_list(body: bytes, served: Served) -> bytes:
    """The object as an item of a list. As in kube-apiserver, items of built-in kinds have no apiVersion and kind."""
    converted = in_version(body, served)
    return converted if served.is_custom else b"{" + converted[converted.index(_AFTER_KIND) + 1 :]


def version_of(text: str) -> int | None:
    """The number of a resourceVersion, None if Go's strconv.ParseUint rejects the text."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    # int() raises for more than 4,300 digits.
    return int(digits) if len(digits) <= len(_MAX_VERSION) and int(digits) <= int(_MAX_VERSION) else None


def moved(body: bytes, old: int, new: int) -> bytes:
    """The bytes with another revision."""
    return body.replace(b'"resourceVersion":"%d"' % old, b'"resourceVersion":"%d"' % new, 1)


def is_same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal. Python's == would hold for 1 and true."""
    if left != right:
        return False
    if isinstance(left, dict):
        return all(is_same(value, right[name]) for name, value in left.items())
    if isinstance(left, list):
        return all(is_same(one, other) for one, other in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool)
