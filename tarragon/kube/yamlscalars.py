"""Resolves YAML scalars by the YAML 1.1 rules of Kubernetes' tools, which differ from those of PyYAML.

`1e3` is a number, `12:30` and dates are strings, and `yes` and `off` are booleans.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from tarragon.kube.meta import Json

_PREFIX = "tag:yaml.org,2002:"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    spelled: word in {"true", "yes", "on"}
    for word in ("true", "false", "yes", "no", "on", "off")
    for spelled in (word, word.capitalize(), word.upper())
}
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,39})")
_OTHER_BASE = re.compile(r"[-+]?0(?:b[01_]{1,128}|x[0-9a-fA-F_]{1,32}|o?[0-7_]{1,42})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,4})?")


class UnknownTagError(ValueError):
    """A tag for which JSON has no value."""


def resolve_scalar(text: str, tag: str | None, *, is_plain: bool) -> Json:
    """The value of a scalar. Quoted text is a string, plain text is resolved, and a tag overrides both."""
    if tag is None or tag == "!":
        return _resolved(text) if is_plain and tag is None else text
    convert = _TAGS.get(tag.removeprefix(_PREFIX))
    if convert is None:
        raise UnknownTagError(f"unsupported tag {tag}")
    return convert(text)


def _resolved(text: str) -> Json:
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _DECIMAL.fullmatch(text):
        return int(text.replace("_", ""))
    if _OTHER_BASE.fullmatch(text):
        return _of_other_base(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) and not text.lstrip("+-").isdigit() else text
    return text


def _of_other_base(text: str) -> Json:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    base = {"b": 2, "x": 16}.get(digits[1:2], 8)
    try:
        return sign * int(digits[2:] if digits[1:2] in {"b", "x", "o"} else digits, base)
    except ValueError:
        return text


_TAGS: Mapping[str, Callable[[str], Json]] = {
    "str": str,
    "int": _resolved,
    "float": _resolved,
    "bool": _resolved,
    "null": _resolved,
}
