"""Encoded objects cut into pieces, so that pieces which revisions or objects have in common are in memory once.

The positions of the cuts decide only how much is shared: joined, the pieces are always the original bytes.
"""

from __future__ import annotations

EncodedPieces = bytes | tuple[bytes, ...]
"""All bytes, or pieces: up to the revision, other metadata, two for each managedFields entry, spec, status."""

_VERSION = b'"resourceVersion":"'
_MANAGED_FIELDS = b',"managedFields":['
_END_OF_MANAGED_FIELDS = b"}]"
_FIELDS = b'"fieldsV1":'
_NEXT_MANAGER = b'{"manager":'
_STATUS = b',"status":{'
_MIN_BYTES = 1024
"""Shorter objects are not cut."""
_MAX_INTERNED_BYTES = 8 * 1024
_MAX_INTERNED = 1024


def join_pieces(held: EncodedPieces) -> bytes:
    return held if isinstance(held, bytes) else b"".join(held)


def total_bytes(held: EncodedPieces) -> int:
    return len(held) if isinstance(held, bytes) else sum(map(len, held))


class ObjectInterner:
    """Cuts objects and interns the pieces of their managedFields, which are equal in objects of one template."""

    def __init__(self) -> None:
        self._interned: dict[bytes, bytes] = {}

    def intern(self, body: bytes, before: EncodedPieces = b"") -> EncodedPieces:
        """Cut an object. `before` is its previous revision, with which it shares equal pieces."""
        version = body.find(_VERSION)
        if len(body) < _MIN_BYTES or version < 0:
            return body
        revision = body.find(b'"', version + len(_VERSION)) + 1
        start = body.find(_MANAGED_FIELDS, revision)
        end = body.find(_END_OF_MANAGED_FIELDS, start) if start > 0 else -1
        if end < 0:
            start = end = revision
        status = body.rfind(_STATUS, end)
        if status < 0:
            status = len(body)
        metadata, spec, status_bytes = body[revision:start], body[end:status], body[status:]
        if isinstance(before, tuple):
            metadata, spec, status_bytes = (
                _same(before[1], metadata),
                _same(before[-2], spec),
                _same(before[-1], status_bytes),
            )
        pieces = [body[:revision], metadata]
        while start < end:  # of each entry: the manager and time, then the fields, which are long
            fields = body.find(_FIELDS, start, end)
            following = body.find(_NEXT_MANAGER, fields, end) if fields > 0 else -1
            stop = following if following > 0 else end
            if fields > 0:
                pieces.append(self._shared(body[start:fields]))
                start = fields
            pieces.append(self._shared(body[start:stop]))
            start = stop
        return (*pieces, spec, status_bytes)

    def _shared(self, piece: bytes) -> bytes:
        if len(piece) > _MAX_INTERNED_BYTES:
            return piece
        interned = self._interned.get(piece)
        if interned is None:
            if len(self._interned) >= _MAX_INTERNED:
                self._interned.clear()
            interned = self._interned[piece] = piece
        return interned


def _same(old: bytes, new: bytes) -> bytes:
    return old if old == new else new
