"""Label and field selectors as kubectl and the API server write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Predicate = Callable[[Mapping[str, str]], bool]

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET = re.compile(rf"({_NAME})\s+(in|notin)\s+\(([^()]*)\)")
_COMPARE = re.compile(rf"({_NAME})\s*(==|=|!=)\s*([-A-Za-z0-9_.]*)")
_EXISTS = re.compile(rf"(!?)\s*({_NAME})")
_FIELD = re.compile(r"([A-Za-z0-9_.\[\]/-]+)(==|=|!=)(.*)")


def everything(_: Mapping[str, str]) -> bool:
    """The predicate of the empty selector."""
    return True


def label_selector(text: str) -> Predicate:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k`; a comma means and. Raises ValueError with the part it can't read."""
    requirements = [_label_requirement(part) for part in _split(text)]
    if not requirements:
        return everything
    return lambda labels: all(holds(labels) for holds in requirements)


def field_selector(text: str) -> Predicate:
    """`metadata.name=a,status.phase!=Running` over a flat mapping from path to text; a missing path reads as empty."""
    requirements: list[tuple[str, bool, str]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(f"invalid field selector {part!r}; write path=value or path!=value")
        requirements.append((match[1], match[2] != "!=", match[3]))
    if not requirements:
        return everything
    return lambda fields: all((fields.get(path, "") == value) is wanted for path, wanted, value in requirements)


def field_paths(text: str) -> set[str]:
    """The paths that a field selector names, so that a server can refuse those it does not index."""
    return {match[1] for part in text.split(",") if (match := _FIELD.fullmatch(part.strip()))}


def from_match_labels(selector: Mapping[str, Any]) -> Predicate:
    """metav1.LabelSelector: matchLabels and matchExpressions."""
    texts = [f"{name}={value}" for name, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        name, values = expression["key"], ",".join(expression.get("values") or [])
        operator = expression["operator"]
        texts.append(
            {"In": f"{name} in ({values})", "NotIn": f"{name} notin ({values})", "Exists": name}.get(
                operator, f"!{name}"
            )
        )
    return label_selector(",".join(texts))


def _split(text: str) -> list[str]:
    """At the commas that stand outside of parentheses."""
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _label_requirement(part: str) -> Predicate:
    if match := _SET.fullmatch(part):
        name, operator = match[1], match[3]
        values = {value.strip() for value in match[4].split(",")}
        if operator == "in":
            return lambda labels: labels.get(name) in values
        return lambda labels: labels.get(name) not in values
    if match := _COMPARE.fullmatch(part):
        name, operator, value = match[1], match[3], match[4]
        if operator == "!=":
            return lambda labels: labels.get(name) != value
        return lambda labels: labels.get(name) == value
    if match := _EXISTS.fullmatch(part):
        name, wanted = match[2], not match[1]
        return lambda labels: (name in labels) is wanted
    raise ValueError(f"unable to parse requirement {part!r}; write for example app=web, tier in (a,b), !canary")
