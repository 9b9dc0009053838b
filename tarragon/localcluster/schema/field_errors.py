"""Faults of the fields of an object: the causes of an Invalid, in the words of a kube-apiserver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MAX_QUOTED = 512
"""The maximum number of characters of a user's value that an error quotes."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of a field: a cause in `details.causes` of an Invalid."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def under(self, path: str) -> FieldError:
        """The same fault in an object that is nested at `path`."""
        return FieldError(f"{path}.{self.field}" if self.field else path, self.reason, self.message)


def quoted(value: Any) -> str:
    """A user's value as errors quote it, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "..."


def invalid_value(field: str, value: Any, message: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {message}")


def required(field: str, message: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value: {message}" if message else "Required value")


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")


def not_found_value(field: str, value: Any) -> FieldError:
    return FieldError(field, "FieldValueNotFound", f"Not found: {quoted(value)}")


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> FieldError:
    words = ", ".join(quoted(one) for one in supported)
    return FieldError(field, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {words}")


def forbidden_value(field: str, message: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {message}")
