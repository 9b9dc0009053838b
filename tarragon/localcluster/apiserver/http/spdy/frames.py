"""Encodes and decodes the frames of SPDY/3.1. No I/O."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

VERSION = 3
FIN = 0x01
LARGEST_CONTROL = 64 * 1024
LARGEST_HEADERS = 64 * 1024
_HEAD = struct.Struct(">II")
_CONTROL = 0x80000000
_STREAM = 0x7FFFFFFF
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 6, 7, 8, 9

# The preset dictionary of header compression. Every implementation must have the same bytes.
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_PHRASES = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(struct.pack(">I", len(word)) + word.encode() for word in (*_WORDS.split(), *_PHRASES))
DICTIONARY += _TAIL.encode()
ADLER32 = 0xE3C6A7C2
"""The checksum of the dictionary, which every compressed stream contains."""


class ProtocolError(Exception):
    """The peer does not speak SPDY/3.1; nothing that follows can be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynStream:
    stream: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SynReply:
    stream: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    stream: int
    headers: Mapping[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Data of a stream. The decoder splits a long frame and passes its parts on as they arrive."""

    stream: int
    data: bytes
    fin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    stream: int
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoAway:
    last: int
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUpdate:
    stream: int
    delta: int


WithHeaders = SynStream | SynReply | Headers
_MADE: Mapping[int, type[SynStream | SynReply | Headers]]
_MADE = {_SYN_STREAM: SynStream, _SYN_REPLY: SynReply, _HEADERS: Headers}
Frame = WithHeaders | Data | Reset | Ping | GoAway | WindowUpdate


class Encoder:
    """Encodes the frames of one direction. They must be sent in the order in which they were encoded."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case Data(stream=stream, data=data, fin=fin):
                return _HEAD.pack(stream, (fin and FIN) << 24 | len(data)) + data
            case SynStream() | SynReply() | Headers():
                return self._with_headers(frame)
            case Reset(stream=stream, status=status):
                return _control(_RST_STREAM, struct.pack(">II", stream, status))
            case Ping(number=number):
                return _control(_PING, struct.pack(">I", number))
            case GoAway(last=last, status=status):
                return _control(_GOAWAY, struct.pack(">II", last, status))
            case WindowUpdate(stream=stream, delta=delta):
                return _control(_WINDOW_UPDATE, struct.pack(">II", stream, delta))

    def _with_headers(self, frame: WithHeaders) -> bytes:
        kind = {SynStream: _SYN_STREAM, SynReply: _SYN_REPLY, Headers: _HEADERS}[type(frame)]
        priority = bytes(6) if kind == _SYN_STREAM else b""
        return _control(kind, struct.pack(">I", frame.stream) + priority + self._block(frame), fin=frame.fin)

    def _block(self, frame: WithHeaders) -> bytes:
        pairs = [part.encode() for pair in frame.headers.items() for part in pair]
        plain = struct.pack(">I", len(frame.headers)) + b"".join(struct.pack(">I", len(part)) + part for part in pairs)
        return self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def _control(kind: int, body: bytes, *, fin: bool = False) -> bytes:
    return _HEAD.pack(_CONTROL | VERSION << 16 | kind, (fin and FIN) << 24 | len(body)) + body


class Decoder:
    """Decodes the frames of the other direction. Frames that are not needed (SETTINGS) are skipped."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._rest = b""
        self._at = 0
        """The offset of the next frame in `_rest`. Cutting off each frame would copy everything after it."""
        self._open: Data | None = None
        self._left = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are now complete. Raises ProtocolError."""
        self._rest, self._at = self._rest[self._at :] + data, 0
        while (frame := self._data() if self._open else self._next()) is not None:
            if not isinstance(frame, _Skipped):
                yield frame

    def _data(self) -> Frame | None:
        """Return the next part of the data frame that has begun."""
        whole = self._open
        if whole is None or not (self._at < len(self._rest) or not self._left):
            return None
        piece = self._taken(self._left)
        self._left -= len(piece)
        if self._left:
            return Data(stream=whole.stream, data=piece)
        self._open = None
        return Data(stream=whole.stream, data=piece, fin=whole.fin)

    def _next(self) -> Frame | _Skipped | None:
        if len(self._rest) - self._at < _HEAD.size:
            return None
        head, second = _HEAD.unpack_from(self._rest, self._at)
        flags, length = second >> 24, second & 0xFFFFFF
        if not head & _CONTROL:
            self._at += _HEAD.size
            self._open, self._left = Data(stream=head, data=b"", fin=bool(flags & FIN)), length
            return SKIPPED
        if (head >> 16) & 0x7FFF != VERSION or length > LARGEST_CONTROL:
            raise ProtocolError("not a frame of SPDY/3")
        if len(self._rest) - self._at < _HEAD.size + length:
            return None
        self._at += _HEAD.size
        body = self._taken(length)
        try:
            return self._control(head & 0xFFFF, body, fin=bool(flags & FIN))
        except struct.error as error:
            raise ProtocolError("a frame is shorter than its kind") from error

    def _taken(self, size: int) -> bytes:
        """Return up to `size` bytes, and move past them."""
        piece = self._rest[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def _control(self, kind: int, body: bytes, *, fin: bool) -> Frame | _Skipped:
        if kind in {_SYN_STREAM, _SYN_REPLY, _HEADERS}:
            stream = _number(body, 0) & _STREAM
            headers = self._headers(body[10 if kind == _SYN_STREAM else 4 :])
            return _MADE[kind](stream=stream, headers=headers, fin=fin)
        if kind == _RST_STREAM:
            return Reset(stream=_number(body, 0) & _STREAM, status=_number(body, 4))
        if kind == _PING:
            return Ping(number=_number(body, 0))
        if kind == _GOAWAY:
            return GoAway(last=_number(body, 0) & _STREAM, status=_number(body, 4))
        if kind == _WINDOW_UPDATE:
            return WindowUpdate(stream=_number(body, 0) & _STREAM, delta=_number(body, 4) & _STREAM)
        return SKIPPED

    def _headers(self, block: bytes) -> dict[str, str]:
        """Return the headers with lower-case names; of several values of one name, the last."""
        try:
            plain = self._inflate.decompress(block, LARGEST_HEADERS)
        except zlib.error as error:
            raise ProtocolError(f"the headers cannot be read: {error}") from error
        if self._inflate.unconsumed_tail:
            raise ProtocolError("the headers are too long")
        return {_word(name).lower(): _word(value.rpartition(b"\0")[2]) for name, value in _texts(plain)}


class _Skipped:
    """A frame that is not needed."""


SKIPPED = _Skipped()


def _number(body: bytes, at: int) -> int:
    (number,) = struct.unpack_from(">I", body, at)
    return int(number)


def _texts(plain: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 4
    for _ in range(_number(plain, 0)):
        name, at = _text(plain, at)
        value, at = _text(plain, at)
        yield name, value


def _word(text: bytes) -> str:
    return text.decode(errors="replace")


def _text(plain: bytes, at: int) -> tuple[bytes, int]:
    begin = at + 4
    end = begin + _number(plain, at)
    if end > len(plain):
        raise ProtocolError("a header is longer than its frame")
    return plain[begin:end], end
