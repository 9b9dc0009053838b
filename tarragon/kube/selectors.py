"""Parses label and field selectors. The ValueErrors have the messages of kube-apiserver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarragon.kube.name_validation import label_value, qualified

Predicate = Callable[[Mapping[str, str]], bool]

_SYMBOL = re.compile(r"==|!=|[=!><(),]")
_WORD = re.compile(r"[^\s=!><(),]+")
_SPACE = re.compile(r"\s*")
_END = ""
"""The end-of-input token. No other token is empty."""
_OPERATORS = frozenset({"in", "notin", "=", "==", "!=", ">", "<"})

_FIELD = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.?)|[,=]", re.DOTALL)
_TERM = re.compile(r"(?:\\.|[^\\,]|\\$)+", re.DOTALL)


def matches_everything(_: Mapping[str, str]) -> bool:
    """The predicate of the empty selector."""
    return True


def parse_label_selector(text: str) -> Predicate:
    """Parse `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`; a comma means AND. Raises ValueError with the invalid part."""
    requirements = list(_Parser(text).requirements())
    if not requirements:
        return matches_everything
    return lambda labels: all(holds(labels) for holds in requirements)


def parse_field_selector(text: str) -> Predicate:
    """Parse `metadata.name=a,status.phase!=Running`, for a flat map from path to string; missing paths are empty."""
    terms = field_terms(text)
    if not terms:
        return matches_everything
    return lambda fields: all((fields.get(path, "") == value) is equal for path, equal, value in terms)


def field_terms(text: str) -> list[tuple[str, bool, str]]:
    """The terms as (path, must be equal, value). In a value, a backslash escapes a comma, = or a backslash."""
    terms = []
    for part in _TERM.findall(text):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append((match[1], match[2] != "!=", _ESCAPED.sub(_unescaped, match[3])))
    return terms


def field_paths(text: str) -> set[str]:
    """The paths of a field selector, so that a server can reject unsupported ones."""
    return {path for path, _, _ in field_terms(text)}


def validate_label(name: str, value: str) -> None:
    """Raise ValueError if a label can't have that name or value."""
    if why := qualified(name):
        raise ValueError(f'invalid label key "{name}": {why}')
    if why := label_value(value):
        raise ValueError(f'invalid label value "{value}" of {name}: {why}')


def label_selector_as_predicate(selector: Mapping[str, Any]) -> Predicate:
    """The predicate of a metav1.LabelSelector with matchLabels and matchExpressions."""
    requirements = [_one_of(name, {value}) for name, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        name, values = expression["key"], set(expression.get("values") or [])
        match expression["operator"]:
            case "In":
                requirements.append(_one_of(name, values))
            case "NotIn":
                requirements.append(_none_of(name, values))
            case "Exists":
                requirements.append(_exists(name))
            case _:
                requirements.append(_is_missing(name))
    return lambda labels: all(holds(labels) for holds in requirements)


class _Parser:
    """Parses one selector. Keywords count as plain words wherever a label or a value is expected."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), _END]
        self._place = 0

    def requirements(self) -> Iterator[Predicate]:
        if self._next == _END:
            return
        if not self._is_word() and self._next != "!":
            raise ValueError(f"found '{self._next}', expected: !, identifier, or 'end of string'")
        while True:
            try:
                yield self._requirement()
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from error
            after = self._take()
            if after == _END:
                return
            if after != ",":
                raise ValueError(f"found '{after}', expected: ',' or 'end of string'")
            if not self._is_word() and self._next != "!":
                raise ValueError(f"found '{self._next}', expected: identifier after ','")

    def _requirement(self) -> Predicate:
        is_negated = self._next == "!"
        if is_negated:
            self._take()
        key = _key(self._word())
        if is_negated:
            return _is_missing(key)
        if self._next in {",", _END}:
            return _exists(key)
        operator = self._take()
        if operator not in _OPERATORS:
            raise ValueError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in {"in", "notin"} else {self._exact_value()}
        for value in values:
            _check_value(key, value)
        if operator in {">", "<"}:
            return _compared(key, operator, values)
        return _one_of(key, values) if operator in {"in", "=", "=="} else _none_of(key, values)

    def _exact_value(self) -> str:
        return "" if self._next in {",", _END} else self._word()

    def _values(self) -> set[str]:
        """The values in parentheses. Nothing between two commas is the empty value."""
        if (opening := self._take()) != "(":
            raise ValueError(f"found '{opening}' expected: '('")
        values = set()
        while True:
            values.add(self._word() if self._is_word() else "")
            after = self._take()
            if after == ")":
                return values
            if after != ",":
                raise ValueError(f"found '{after}', expected: ',' or ')'")

    def _word(self) -> str:
        if not self._is_word():
            raise ValueError(f"found '{self._next}', expected: identifier")
        return self._take()

    @property
    def _next(self) -> str:
        return self._tokens[self._place]

    def _is_word(self) -> bool:
        return _WORD.fullmatch(self._next) is not None

    def _take(self) -> str:
        token = self._next
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while True:
        space = _SPACE.match(text, place)
        place = space.end() if space else place
        found = _SYMBOL.match(text, place) or _WORD.match(text, place)
        if found is None:
            return
        yield found[0]
        place = found.end()


def _exists(key: str) -> Predicate:
    return lambda labels: key in labels


def _is_missing(key: str) -> Predicate:
    return lambda labels: key not in labels


def _one_of(key: str, values: set[str]) -> Predicate:
    return lambda labels: labels.get(key) in values


def _none_of(key: str, values: set[str]) -> Predicate:
    return lambda labels: labels.get(key) not in values


def _compared(key: str, operator: str, values: set[str]) -> Predicate:
    bound = _integer(*values)
    if bound is None:
        words = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise ValueError(f'values[0]: Invalid value: "{next(iter(values), "")}": {words}')

    def holds(labels: Mapping[str, str]) -> bool:
        value = _integer(labels.get(key, ""))
        return value is not None and (value > bound if operator == ">" else value < bound)

    return holds


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _key(text: str) -> str:
    if why := qualified(text):
        raise ValueError(f'<nil>: Invalid value: "{text}": {why}')
    return text


def _check_value(key: str, value: str) -> None:
    if why := label_value(value):
        raise ValueError(f'values[0][{key}]: Invalid value: "{value}": {why}')


def _unescaped(match: re.Match[str]) -> str:
    if match[0] in {",", "="}:
        raise ValueError(f"invalid field selector: unescaped character in value: {ord(match[0])}")
    if match[1] not in {"\\", ",", "="} or not match[1]:
        raise ValueError(f"invalid field selector: invalid escape sequence: {match[0]}")
    return match[1]
