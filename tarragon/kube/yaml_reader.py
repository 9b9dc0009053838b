"""Reads YAML as kubectl does, with the line of every key and item. Rejects YAML bombs, duplicate keys and unknown tags.

It processes the parser's events with an explicit stack, so that deep nesting can't exhaust Python's. Scalars follow the
YAML 1.1 rules of Kubernetes' tools, which differ from PyYAML's: `1e3` is a number, `12:30` and dates are strings, and
`yes` and `off` are booleans.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tarragon.base.errors import Problem
from tarragon.kube.field_reader import join_path
from tarragon.kube.json_depth import MAX_MANIFEST_DEPTH
from tarragon.kube.meta import Json

MAX_TEXT_LENGTH = 8 * 2**20
"""The maximum length in characters: several times the 1.5 MB that etcd accepts for an object."""
MAX_VALUES = 200_000
"""The maximum number of values in a document after its anchors are expanded."""

MERGE = "<<"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
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


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The value of a document, its first line, and the lines of its parts by path: of fields, those of their keys."""

    value: Json
    line: int
    lines: Mapping[str, int]

    def line_of(self, path: str) -> int:
        """The line of the field or item at that path, or of the nearest enclosing one that has a line."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, self.line)


class _FaultyError(Exception):
    """A fault after which the rest of the text can't be read."""

    def __init__(self, line: int, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.problem = Problem("", message, remedy, line=line)


@dataclass(slots=True)
class _Open:
    """A map or list that is being read. `size` is its number of values, with anchors counted at each use."""

    value: dict[str, Json] | list[Json]
    path: str
    line: int
    anchor: str | None
    key: str | None = None
    key_lines: dict[str, int] = field(default_factory=dict)
    size: int = 1
    merges: bool = False
    """Whether the map has an unquoted key <<. In quotes it is an ordinary key."""


def read_yaml(text: str) -> tuple[list[YamlDocument], list[Problem]]:
    """Read all non-empty documents, and all problems. Never raises."""
    if len(text) > MAX_TEXT_LENGTH:
        return [], [Problem("", f"has {len(text)} characters, more than the maximum of {MAX_TEXT_LENGTH}")]
    documents: list[YamlDocument] = []
    problems: list[Problem] = []
    try:
        for document in _documents(text, problems):
            if document.value is not None:
                documents.append(document)  # noqa: PERF401 - documents before a fault are kept
    except _FaultyError as fault:
        problems.append(_template(fault.problem.line) if "{{" in text else fault.problem)
    except yaml.MarkedYAMLError as error:
        problems.append(_syntax(error, text))
    except (yaml.YAMLError, ValueError) as error:
        problems.append(_unreadable(error, text))
    return documents, problems


def _documents(text: str, problems: list[Problem]) -> Iterator[YamlDocument]:
    builder = _Builder(problems)
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            builder = _Builder(problems)
        elif isinstance(event, yaml.DocumentEndEvent):
            yield YamlDocument(builder.root, builder.line, builder.lines)
        else:
            builder.take(event)


class _Builder:
    """Turns the events of one document into a value."""

    def __init__(self, problems: list[Problem]) -> None:
        self.root: Json = None
        self.line = 1
        self.lines: dict[str, int] = {}
        self._problems = problems
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Json, int]] = {}

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._begin(event, line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._end(line)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, line)

    def _begin(self, event: Any, line: int) -> None:
        if self._expects_key():
            raise _FaultyError(line, "a key must be text, not a map or a list")
        if len(self._open) >= MAX_MANIFEST_DEPTH:
            raise _FaultyError(line, f"is nested deeper than {MAX_MANIFEST_DEPTH} levels")
        if event.tag not in {None, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}:
            raise _FaultyError(line, f"unsupported tag {event.tag}", "remove it")
        value: dict[str, Json] | list[Json] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(value, self._path(), line, event.anchor))

    def _end(self, line: int) -> None:
        closed = self._open.pop()
        if isinstance(closed.value, dict) and closed.merges:
            closed.value = _with_merged(closed.value, line)
        self._put(closed.value, closed.size, closed.line, closed.anchor)

    def _alias(self, event: Any, line: int) -> None:
        if event.anchor not in self._anchors:
            raise _FaultyError(line, f"the alias *{event.anchor} has no anchor before it")
        if self._expects_key():
            raise _FaultyError(line, "a key must be text, not an alias")
        value, size = self._anchors[event.anchor]
        self._put(value, size, line, None)

    def _scalar(self, event: Any, line: int) -> None:
        if self._expects_key():
            self._key(event, line)
            return
        try:
            value = _resolve_scalar(event.value, event.tag, is_plain=event.implicit[0])
        except _UnknownTagError as error:
            raise _FaultyError(line, str(error), "remove it") from error
        self._put(value, 1, line, event.anchor)

    def _key(self, event: Any, line: int) -> None:
        """Take a key. Its text is used as written, even for a number or `yes`, because JSON keys are strings."""
        top = self._open[-1]
        key = event.value
        if not key and event.implicit[0]:
            raise _FaultyError(line, "a key is missing before the colon")
        if key in top.key_lines:
            first = top.key_lines[key]
            self._problems.append(Problem("", f"duplicate key {key}, first used in line {first}", line=line))
        top.key_lines[key] = line
        top.key = key
        top.merges = top.merges or (key == MERGE and event.implicit[0])

    def _put(self, value: Json, size: int, line: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        self.lines.setdefault(self._path(), self._key_line(line))
        if not self._open:
            self.root, self.line = value, line
            return
        top = self._open[-1]
        top.size += size
        if top.size > MAX_VALUES:
            raise _FaultyError(line, f"has more than {MAX_VALUES} values once its anchors are expanded")
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is not None:
            top.value[top.key] = value
            top.key = None

    def _key_line(self, line: int) -> int:
        """The line of the key whose value comes next: a map begins below its key, where nobody looks for its faults."""
        top = self._open[-1] if self._open else None
        return line if top is None or top.key is None else top.key_lines[top.key]

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _path(self) -> str:
        """The path of the next value."""
        if not self._open:
            return ""
        top = self._open[-1]
        return f"{top.path}[{len(top.value)}]" if isinstance(top.value, list) else join_path(top.path, top.key or "")


def _with_merged(value: dict[str, Json], line: int) -> dict[str, Json]:
    """Resolve `<<: *defaults`. The map's own entries take precedence."""
    merges = value[MERGE] if isinstance(value[MERGE], list) else [value[MERGE]]
    result: dict[str, Json] = {}
    for merge in reversed(merges):
        if not isinstance(merge, dict):
            raise _FaultyError(line, "the value of << must be a map or a list of maps")
        result |= merge
    return result | {name: each for name, each in value.items() if name != MERGE}


def _syntax(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark is not None else 1
    lines = text.splitlines()
    line = lines[number - 1] if number <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return Problem("", "begins with a tab", "YAML must be indented with spaces", line=number)
    if "{{" in text:
        return _template(number)
    message = error.problem or "syntax error"
    return Problem("", f"invalid YAML: {message}", _remedy(message), line=number)


def _template(line: int | None) -> Problem:
    return Problem("", "invalid YAML; it looks like a Helm template", "render it first: helm template", line=line)


def _remedy(message: str) -> str:
    if "mapping values are not allowed" in message:
        return "put text that contains a colon in quotes, or check the indentation"
    if "cannot start any token" in message:
        return "put text that begins with a special character in quotes"
    if "unexpected end of stream" in message:
        return "close the quotes and brackets that were opened"
    return "check the indentation and the colons around it"


def _unreadable(error: Exception, text: str) -> Problem:
    position = getattr(error, "position", None)
    if isinstance(position, int):
        line = text.count("\n", 0, position) + 1
        return Problem("", "has a character that YAML does not allow", "is it a binary file?", line=line)
    return Problem("", "invalid YAML", "is it a binary file?")


class _UnknownTagError(ValueError):
    """A tag for which JSON has no value."""


def _resolve_scalar(text: str, tag: str | None, *, is_plain: bool) -> Json:
    """The value of a scalar. Quoted text is a string, plain text is resolved, and a tag overrides both."""
    if tag is None or tag == "!":
        return _resolved(text) if is_plain and tag is None else text
    convert = _TAGS.get(tag.removeprefix(_PREFIX))
    if convert is None:
        raise _UnknownTagError(f"unsupported tag {tag}")
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
