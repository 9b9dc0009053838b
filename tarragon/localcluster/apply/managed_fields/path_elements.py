"""Labels of the steps of a field path, and paths as errors write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from tarragon.kube.codec import decode
from tarragon.localcluster.apply.managed_fields.field_set import Path

_KINDS = ("f:", "k:", "v:", "i:")


class BadLabelError(ValueError):
    """A label is not a step of a path."""


def of_value(value: Any) -> str:
    """The label of an item of a set."""
    return f"v:{_json(value)}"


def of_keys(keys: Mapping[str, Any]) -> str:
    """The label of an item of an associative list. The keys must be sorted by name."""
    return f"k:{_json(keys)}"


def canonical(label: str) -> str | None:
    """A client's label in canonical form, None for an unknown kind of label.

    Raises BadLabelError.
    """
    kind, content = label[:2], label[2:]
    if kind not in _KINDS:
        return None
    if kind == "f:":
        return label
    try:
        value: Any = decode(content, object)
    except msgspec.DecodeError as error:
        raise BadLabelError(f"{label} is not a step of a path: {error}") from error
    if kind == "k:":
        if not isinstance(value, dict):
            raise BadLabelError(f"{label} is not a step of a path: its keys must be an object")
        return of_keys(dict(sorted(value.items())))
    if kind == "i:" and type(value) is not int:
        raise BadLabelError(f"{label} is not a step of a path: its index must be a number")
    return f"{kind}{_json(value)}"


def path_text(path: Path) -> str:
    """The path as errors write it: `.spec.ports[port=80,protocol="TCP"].name`."""
    return "".join(_shown_step(label) for label in path)


def _shown_step(label: str) -> str:
    kind, content = label[:2], label[2:]
    match kind:
        case "f:":
            return f".{content}"
        case "k:":
            pairs = decode(content, dict).items()
            return f"[{','.join(f'{name}={_quoted(value)}' for name, value in pairs)}]"
        case "v:":
            return f"[={_quoted(decode(content, object))}]"
        case _:
            return f"[{content}]"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
