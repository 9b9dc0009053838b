"""The protobuf messages of Kubernetes' kinds, from a generated table of their fields.

A row of the table (tools/make_protobuf.py) is a field's number and `name:type`, with marks before the type: `?` omitted
from JSON when zero, `[` a list, `{` a map with string keys, `<` inlined into the enclosing message. The type `items …`
is a list wrapped in a message, and `either …` a message of which one field is the whole value.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tarragon.kube.codec import decode

_OF_ALL_GROUPS = frozenset({"DeleteOptions"})
"""Clients send these kinds under the group of the object that they delete."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message. `name` is its name in JSON; `type` names a scalar, a special type or a message."""

    name: str
    type: str
    is_list: bool = False
    is_map: bool = False
    is_spread: bool = False
    omits_zero: bool = False


Message = Mapping[int, Field]


def message_of(api_version: str, kind: str) -> Message | None:
    """Return the message of a kind; None when the table has none."""
    group_version = "*" if kind in _OF_ALL_GROUPS else api_version
    name = _table()["kinds"].get(f"{group_version} {kind}")
    return message(name) if name is not None else None


@cache
def message(name: str) -> Message:
    return {int(number): _field(row) for number, row in _table()["messages"][name].items()}


def _field(row: str) -> Field:
    name, _, marked = row.partition(":")
    kind = marked.lstrip("<?[{")
    marks = marked[: len(marked) - len(kind)]
    return Field(name, kind, is_list="[" in marks, is_map="{" in marks, is_spread="<" in marks, omits_zero="?" in marks)


@cache
def _table() -> Mapping[str, Any]:
    data = files("tarragon.localcluster.apiserver.http").joinpath("messages.json.gz").read_bytes()
    table: Mapping[str, Any] = decode(gzip.decompress(data), dict)
    return table
