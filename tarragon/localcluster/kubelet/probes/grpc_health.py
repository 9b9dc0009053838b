"""One call of grpc.health.v1.Health/Check, spoken by hand: a probe needs no more of HTTP/2 than a few frames."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from enum import IntEnum

from tarragon.localcluster.kubelet.probes.checks import dialed
from tarragon.localcluster.kubelet.probes.results import Finding

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SERVING = 1
_STATUS_WORDS = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_STREAM = 1
_END_STREAM, _ACK, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8


class _Type(IntEnum):
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7


async def check(host: str, port: int, service: str) -> Finding:
    """Whether the service says that it serves; an empty name asks for the server as a whole."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        words = f'error: failed to connect service "{host}:{port}": {dialed(host, port, error)}'
        return Finding(is_well=False, words=words)
    try:
        writer.write(_PREFACE + _frame(_Type.SETTINGS, 0, b"", stream=0) + _call(f"{host}:{port}", service))
        answer = await _answer(reader, writer)
    except (OSError, asyncio.IncompleteReadError):
        answer = b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return _finding(answer)


def _finding(answer: bytes) -> Finding:
    if not answer:
        words = (
            "this server does not implement the grpc health protocol (grpc.health.v1.Health), or not for this service"
        )
        return Finding(is_well=False, words=f"error: {words}")
    status = _status(answer[5:])
    if status == _SERVING:
        return Finding(is_well=True)
    return Finding(is_well=False, words=f'service unhealthy (responded with "{_STATUS_WORDS.get(status, status)}")')


def _status(message: bytes) -> int:
    """HealthCheckResponse.status: field 1, which is left out where it is 0."""
    return message[1] if len(message) > 1 and message[0] == 1 << 3 else 0


def _frame(kind: _Type, flags: int, payload: bytes, *, stream: int = _STREAM) -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def _call(authority: str, service: str) -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": "kube-probe/1.32",
    }
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    body = b"\0" + len(message).to_bytes(4) + message
    head = b"".join(_literal(key, value) for key, value in headers.items())
    return _frame(_Type.HEADERS, _END_HEADERS, head) + _frame(_Type.DATA, _END_STREAM, body)


def _literal(name: str, value: str) -> bytes:
    """A header field that no table is needed for."""
    return b"\0" + b"".join(_prefixed(len(text)) + text.encode() for text in (name, value))


def _prefixed(length: int) -> bytes:
    """With a prefix of seven bits, as HPACK writes lengths."""
    return bytes([length]) if length < 0x7F else b"\x7f" + _varint(length - 0x7F)  # noqa: PLR2004 - all bits of it


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits at a time
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The message that is answered, with its prefix; empty for none."""
    said = b""
    while True:
        head = await reader.readexactly(9)
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        stream = int.from_bytes(head[5:]) & 0x7FFFFFFF
        payload = await reader.readexactly(length)
        if kind == _Type.SETTINGS and not flags & _ACK:
            writer.write(_frame(_Type.SETTINGS, _ACK, b"", stream=0))
        elif kind == _Type.PING and not flags & _ACK:
            writer.write(_frame(_Type.PING, _ACK, payload, stream=0))
        elif kind == _Type.DATA and stream == _STREAM:
            said += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
        if kind == _Type.GOAWAY or (stream == _STREAM and (kind == _Type.RST_STREAM or _is_last(kind, flags))):
            return said


def _is_last(kind: int, flags: int) -> bool:
    return kind in {_Type.DATA, _Type.HEADERS} and bool(flags & _END_STREAM)
