"""Objects as stored bytes: encoded once per change, rewritten without decoding where only a version differs.

Stored bytes begin with apiVersion, kind and metadata, and metadata with its names, uid and resourceVersion: so the
first `"resourceVersion":` in them is the object's own.
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
_MOST_VERSION = str(2**64 - 1)
_FIRST = ("name", "generateName", "namespace", "uid", "resourceVersion")


def encoded(served: Served, thing: Mapping[str, Any], revision: int) -> bytes:
    """The bytes to store: in the storage version, under the given revision (0: none)."""
    metadata = thing["metadata"]
    head = {name: metadata[name] for name in _FIRST[:-1] if metadata.get(name)}
    if revision:
        head["resourceVersion"] = str(revision)
    rest = {name: value for name, value in metadata.items() if name not in _FIRST}
    group, version = served.group, served.storage_version
    ordered = {
        "apiVersion": f"{group}/{version}" if group else version,
        "kind": served.kind,
        "metadata": {**head, **rest},
        **{name: value for name, value in thing.items() if name not in {"apiVersion", "kind", "metadata"}},
    }
    return encode(ordered)


def in_version(body: bytes, served: Served) -> bytes:
    """The bytes as a served version answers them: only apiVersion is rewritten (conversion None), but of a view all."""
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
    """Whether what is stored is what is read: any write of an object that is not writes the new shape down."""
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
    """As a real server reads an object that it stored under an older schema: pruned, and with new defaults."""
    thing = decode(body, dict)
    if served.schema is not None:
        served.schema.prune(thing)
        served.schema.default(thing)
    return encode(thing)


def in_list(body: bytes, served: Served) -> bytes:
    """The bytes as an item of a list. Of built-in kinds an item does not say what it is, the list does: as in Go."""
    whole = in_version(body, served)
    return whole if served.is_custom else b"{" + whole[whole.index(_AFTER_KIND) + 1 :]


def version_of(text: str) -> int | None:
    """The number of a resourceVersion, None of what Go's strconv.ParseUint refuses."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    # Python reads no number of more than 4,300 digits.
    return int(digits) if len(digits) <= len(_MOST_VERSION) and int(digits) <= int(_MOST_VERSION) else None


def moved(body: bytes, old: int, new: int) -> bytes:
    """The bytes under another revision."""
    return body.replace(b'"resourceVersion":"%d"' % old, b'"resourceVersion":"%d"' % new, 1)


def is_same(left: Any, right: Any) -> bool:
    """Equality of JSON. Python's own would take 1 for true."""
    if left != right:
        return False
    if isinstance(left, dict):
        return all(is_same(value, right[name]) for name, value in left.items())
    if isinstance(left, list):
        return all(is_same(one, other) for one, other in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool)
