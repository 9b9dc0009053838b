"""Stored bytes cut into pieces: what several revisions or many objects have in common is in memory once.

Where they are cut decides only how much is shared: put together, they are the same bytes whatever stands in them.
"""

from __future__ import annotations

Held = bytes | tuple[bytes, ...]
"""Whole, or in pieces: up to the revision, the rest of the metadata, managedFields in twos, the spec, the status."""

_VERSION = b'"resourceVersion":"'
_OWNERS = b',"managedFields":['
_END_OF_OWNERS = b"}]"
_FIELDS = b'"fieldsV1":'
_NEXT_OWNER = b'{"manager":'
_STATUS = b',"status":{'
_SHORT = 1024
"""Bytes that are not worth the trouble."""
_LONGEST_KEPT = 8 * 1024
_MOST_KEPT = 1024


def whole(held: Held) -> bytes:
    return held if isinstance(held, bytes) else b"".join(held)


def length(held: Held) -> int:
    return len(held) if isinstance(held, bytes) else sum(map(len, held))


class Cutter:
    """Remembers the managedFields that it has cut: objects that are made alike have the same."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    def cut(self, body: bytes, before: Held = b"") -> Held:
        """`before` is the object's last revision."""
        version = body.find(_VERSION)
        if len(body) < _SHORT or version < 0:
            return body
        revision = body.find(b'"', version + len(_VERSION)) + 1
        owners = body.find(_OWNERS, revision)
        end = body.find(_END_OF_OWNERS, owners) if owners > 0 else -1
        if end < 0:
            owners = end = revision
        status = body.rfind(_STATUS, end)
        if status < 0:
            status = len(body)
        metadata, spec, told = body[revision:owners], body[end:status], body[status:]
        if isinstance(before, tuple):
            metadata, spec, told = _same(before[1], metadata), _same(before[-2], spec), _same(before[-1], told)
        pieces = [body[:revision], metadata]
        while owners < end:  # who and when, then what is owned, which is long; and the next
            fields = body.find(_FIELDS, owners, end)
            following = body.find(_NEXT_OWNER, fields, end) if fields > 0 else -1
            stop = following if following > 0 else end
            if fields > 0:
                pieces.append(self._shared(body[owners:fields]))
                owners = fields
            pieces.append(self._shared(body[owners:stop]))
            owners = stop
        return (*pieces, spec, told)

    def _shared(self, piece: bytes) -> bytes:
        if len(piece) > _LONGEST_KEPT:
            return piece
        known = self._kept.get(piece)
        if known is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            known = self._kept[piece] = piece
        return known


def _same(old: bytes, new: bytes) -> bytes:
    return old if old == new else new
