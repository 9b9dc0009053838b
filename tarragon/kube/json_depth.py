"""Measures and limits the nesting depth of untrusted JSON, without recursion.

API servers store objects with up to 10,000 levels. Python's recursion limit is about 1,000 calls, minus the current
stack, and differs between versions. Therefore all JSON is limited here to a depth far below that.
"""

from __future__ import annotations

import re
from itertools import accumulate

MAX_DEPTH = 128
"""The maximum number of levels that are decoded. Kubernetes' own objects have about 30."""

MAX_MANIFEST_DEPTH = 100
"""The maximum depth of a manifest. What a server adds (`managedFields`) then stays within MAX_DEPTH."""

TOO_DEEP_PLACEHOLDER = f"(left out: nested more than {MAX_DEPTH} levels deep)"
"""Replaces values that are nested too deeply."""

# Possessive quantifiers, and \Z as the end of a string, keep the time linear for any text.
_TOKENS = re.compile(rb'[\[{\]}]|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_NOT_STRUCTURAL = bytes(byte for byte in range(256) if byte not in _OPENING + _CLOSING + b'"')
_STEPS = [(byte in _OPENING) - (byte in _CLOSING) for byte in range(256)]
_REPLACEMENT = f'"{TOO_DEEP_PLACEHOLDER}"'.encode()


def is_depth_within(data: bytes, levels: int) -> bool:
    """Whether the JSON text has at most that many levels. Takes at most half the time of decoding it."""
    if data.count(b"{") + data.count(b"[") <= levels:
        return True
    brackets = rest = _brackets(data)
    for _ in range(levels // 2):
        # Removes the innermost level, or two levels if their brackets differ.
        rest = rest.replace(b"{}", b"").replace(b"[]", b"")
        if not rest:
            return True
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) <= levels


def _brackets(data: bytes) -> bytes:
    """The brackets outside of strings."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Removing the quotes of a string without brackets does not change which brackets are within strings.
    structure = data.translate(None, _NOT_STRUCTURAL).replace(b'""', b"")
    return b"".join(structure.split(b'"')[::2])


def with_limited_depth(data: bytes) -> bytes:
    """The JSON text, `truncate_depth` to MAX_DEPTH if it is deeper."""
    return data if is_depth_within(data, MAX_DEPTH) else truncate_depth(data, MAX_DEPTH)


def truncate_depth(data: bytes, levels: int) -> bytes:
    """The JSON text with TOO_DEEP_PLACEHOLDER in place of every object and list that is deeper than that many levels.

    Takes about a quarter of a second for the largest object that etcd stores. Invalid JSON stays invalid.
    """
    parts: list[bytes] = []
    taken = depth = 0
    for token in _TOKENS.finditer(data):
        step = _STEPS[data[token.start()]]
        depth += step
        if step > 0 and depth == levels + 1:
            parts += (data[taken : token.start()], _REPLACEMENT)
            taken = len(data)  # a text that ends before the closing bracket is truncated and not valid JSON
        elif step < 0 and depth == levels:
            taken = token.end()
    parts.append(data[taken:])
    return b"".join(parts)
