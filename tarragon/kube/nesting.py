"""The depth of JSON texts from outside: measured, and limited, without recursion.

An API server stores objects that nest 10,000 levels deep. Python's own limit is about 1,000 calls, less whatever is
called already, and differs between its versions. So every text has one limit here, far below Python's.
"""

from __future__ import annotations

import re
from itertools import accumulate

MAX_DEPTH = 128
"""Levels of objects and lists that are read. Kubernetes' own objects have about 30."""

MANIFEST_DEPTH = 100
"""Levels of what is written: with what a server adds (`managedFields`) the object stays within MAX_DEPTH."""

LEFT_OUT = f"(left out: nested more than {MAX_DEPTH} levels deep)"
"""Stands where a deeper value stood."""

# Possessive, and the end of the text ends a string too: the time is linear whatever the text is.
_TOKENS = re.compile(rb'[\[{\]}]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_NO_MARKS = bytes(byte for byte in range(256) if byte not in _OPENING + _CLOSING + b'"')
_STEPS = [(byte in _OPENING) - (byte in _CLOSING) for byte in range(256)]
_MARK = f'"{LEFT_OUT}"'.encode()


def is_within(data: bytes, levels: int) -> bool:
    """Whether the JSON text nests no deeper than so many levels. Takes half the time of decoding it, or less."""
    if data.count(b"{") + data.count(b"[") <= levels:
        return True
    brackets = rest = _brackets(data)
    for _ in range(levels // 2):
        # Takes away one level from below, or two where their brackets differ.
        rest = rest.replace(b"{}", b"").replace(b"[]", b"")
        if not rest:
            return True
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) <= levels


def _brackets(data: bytes) -> bytes:
    """Those that are not within strings."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Without the quotes of a string that has no bracket in it, what is left is as much within strings as before.
    marks = data.translate(None, _NO_MARKS).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def within_limit(data: bytes) -> bytes:
    """The JSON text, `limited` to MAX_DEPTH where it is deeper."""
    return data if is_within(data, MAX_DEPTH) else limited(data, MAX_DEPTH)


def limited(data: bytes, levels: int) -> bytes:
    """The JSON text with LEFT_OUT in the place of every object and list that is deeper than so many levels.

    Takes about a quarter of a second for the largest object that etcd stores. A text that is not JSON stays none.
    """
    parts: list[bytes] = []
    taken = depth = 0
    for token in _TOKENS.finditer(data):
        step = _STEPS[data[token.start()]]
        depth += step
        if step > 0 and depth == levels + 1:
            parts += (data[taken : token.start()], _MARK)
            taken = len(data)  # a text that ends in here has lost its end, and is no JSON
        elif step < 0 and depth == levels:
            taken = token.end()
    parts.append(data[taken:])
    return b"".join(parts)
