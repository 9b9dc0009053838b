"""Reads untrusted manifests: each value knows its path, and problems are noted with it instead of being raised."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from tarragon.base.errors import Problem
from tarragon.kube.meta import Json

E = TypeVar("E", bound=StrEnum)

INT32 = 2**31 - 1
INT64 = 2**63 - 1

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST_TEXT = 60
_FEW = 12


@dataclass(slots=True)
class CollectedProblems:
    """The problems found in one manifest. They are collected while it is read and don't change afterwards."""

    problems: list[Problem] = field(default_factory=list)
    unknown: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def add(self, others: CollectedProblems) -> None:
        """Add the problems that were collected separately."""
        self.problems += others.problems
        self.unknown += others.unknown
        self.warnings += others.warnings


@dataclass(frozen=True, slots=True)
class FieldReader:
    """A value of a manifest. A missing value and null are the same; for both, methods return the caller's default.

    The path is only assembled on demand, because few values have problems.
    """

    value: Json
    name: str | int
    notes: CollectedProblems
    parent: FieldReader | None = None

    @property
    def path(self) -> str:
        above = self.parent.path if self.parent is not None else ""
        return join_path(above, self.name) if isinstance(self.name, str) else f"{above}[{self.name}]"

    @property
    def is_missing(self) -> bool:
        return self.value is None

    def is_map(self) -> bool:
        """Whether the value is a map. Any other value that is not missing is a problem."""
        if isinstance(self.value, dict):
            return True
        if not self.is_missing:
            self.add_problem(f"must be a map of fields, not {describe_value(self.value)}")
        return False

    def field(self, name: str) -> FieldReader:
        """The field of that name. It is missing if the value is not a map; check that once with `is_map`."""
        found = self.value.get(name) if isinstance(self.value, dict) else None
        return FieldReader(found, name, self.notes, self)

    def fields(self) -> Iterator[tuple[str, FieldReader]]:
        """The entries of a map. A value that is not a map has none and is a problem."""
        if not self.is_map():
            return
        for name in self.value:
            if isinstance(name, str):
                yield name, self.field(name)
            else:
                self.add_problem(f"has the key {name!r}, but keys must be text", "put it in quotes")

    def items(self) -> Iterator[FieldReader]:
        """The items of a list. A value that is not a list has none and is a problem."""
        if self.is_missing:
            return
        if not isinstance(self.value, list | tuple):
            self.add_problem(f"must be a list, not {describe_value(self.value)}", "begin each item with a dash")
            return
        for index, item in enumerate(self.value):
            yield FieldReader(item, index, self.notes, self)

    def string(self, missing: str = "") -> str:
        if self.is_missing:
            return missing
        if isinstance(self.value, str):
            return self.value
        remedy = f'write it in quotes: "{_plain(self.value)}"' if isinstance(self.value, bool | int | float) else ""
        self.add_problem(f"must be text, not {describe_value(self.value)}", remedy)
        return missing

    def integer(self, minimum: int = 0, maximum: int = INT32) -> int | None:
        """The value as an integer within bounds; None if it is missing or, with a problem, invalid."""
        value = self.value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.add_problem(f"must be a whole number, not {describe_value(value)}", _as_number(value))
        elif value < minimum:
            self.add_problem(f"must be {minimum} or more, not {_plain(value)}")
        elif value > maximum:
            self.add_problem(f"must be {maximum} or less, not {_plain(value)}")
        else:
            return value
        return None

    def boolean(self) -> bool:
        """The value as a boolean; False if it is missing."""
        if self.is_missing or isinstance(self.value, bool):
            return bool(self.value)
        remedy = f"write {self.value.lower()} without quotes" if str(self.value).lower() in {"true", "false"} else ""
        self.add_problem(f"must be true or false, not {describe_value(self.value)}", remedy)
        return False

    def enum(self, choices: type[E], missing: E) -> E:
        if self.is_missing:
            return missing
        if not isinstance(self.value, str):
            self.add_problem(
                f"must be {_alternatives(choice.value for choice in choices)}, not {describe_value(self.value)}"
            )
            return missing
        for choice in choices:
            if choice.value == self.value:
                return choice
        words = [choice.value for choice in choices if choice.value]
        self.add_problem(
            f"must be {_alternatives(words)}, not {describe_value(self.value)}", suggestion(self.value, words)
        )
        return missing

    def string_map(self) -> dict[str, str]:
        """The value as a map of strings, such as labels."""
        return {name: value.string() for name, value in self.fields()}

    def note_unknown_fields(self, known: Collection[str]) -> None:
        """Note every field that is not in `known`."""
        if not isinstance(self.value, dict):
            return
        for name in self.value:
            if name not in known and isinstance(name, str):
                names = sorted(known)
                remedy = suggestion(name, names) or (f"known fields: {', '.join(names)}" if len(names) <= _FEW else "")
                self.field(name).add_unknown_field(remedy)

    def add_problem(self, message: str, remedy: str = "") -> None:
        self.notes.problems.append(Problem(self.path, message, remedy))

    def add_wrong_name(self, message: str, remedy: str = "") -> None:
        self.notes.problems.append(Problem(self.path, message, remedy, is_of_name=True))

    def add_unknown_field(self, remedy: str = "") -> None:
        self.notes.unknown.append(Problem(self.path, "unknown field", remedy))

    def add_warning(self, message: str, remedy: str = "") -> None:
        self.notes.warnings.append(Problem(self.path, message, remedy))


def join_path(path: str, name: str) -> str:
    """The path of a field, as users write it."""
    if not path:
        return name
    return f"{path}.{name}" if _PLAIN_NAME.fullmatch(name) else f'{path}["{_cut(name)}"]'


def describe_value(value: Any) -> str:
    """A description of the value for messages: `the text "3"`, `3.5`, `a list`."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return f'the text "{_cut(value)}"'
        case int() | float():
            return _plain(value)
        case Mapping():
            return "a map"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant. Wrong capitalization is the most frequent mistake, so it comes first."""
    names = list(known)
    folded = {candidate.lower(): candidate for candidate in names}
    if name.lower() in folded:
        return folded[name.lower()]
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """A remedy that suggests the nearest known name; empty if none is near."""
    meant = nearest_name(name, known)
    return f"did you mean {meant}?" if meant else ""


def _cut(text: str) -> str:
    shown = text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
    return "".join(letter if letter.isprintable() else " " for letter in shown)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    return _cut(str(value))


def _as_number(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value.strip()):
        return f"write {int(value)} without quotes"
    if isinstance(value, float) and value.is_integer() and abs(value) < INT64:
        return f"write {int(value)}"
    return ""


def _alternatives(words: Iterable[str]) -> str:
    shown = [word for word in words if word]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
