"""Faults of the fields of an object: the causes of an Invalid, in the words of a kube-apiserver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MAX_QUOTED = 512
"""The maximum number of characters of a user's value that an error quotes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a field: a cause in `details.causes` of an Invalid."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def under(self, path: str) -> Fault:
        """The same fault in an object that is nested at `path`."""
        return Fault(f"{path}.{self.field}" if self.field else path, self.reason, self.message)


def shown(value: Any) -> str:
    """A user's value as errors quote it, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "..."


def invalid_value(field: str, value: Any, message: str) -> Fault:
    return Fault(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {message}")


def required(field: str, message: str = "") -> Fault:
    return Fault(field, "FieldValueRequired", f"Required value: {message}" if message else "Required value")


def duplicate(field: str, value: Any) -> Fault:
    return Fault(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def not_found_value(field: str, value: Any) -> Fault:
    return Fault(field, "FieldValueNotFound", f"Not found: {shown(value)}")


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> Fault:
    words = ", ".join(shown(one) for one in supported)
    return Fault(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {words}")


def forbidden_value(field: str, message: str) -> Fault:
    return Fault(field, "FieldValueForbidden", f"Forbidden: {message}")
