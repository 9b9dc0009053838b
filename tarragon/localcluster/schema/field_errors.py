"""What is wrong with an object, field by field: the causes of an Invalid, in the words of a kube-apiserver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SHOWN = 512
"""Bytes of a user's own value that an error quotes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an object: a cause in `details.causes` of an Invalid."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def under(self, path: str) -> Fault:
        """The same fault of an object that lies at `path` of a greater one."""
        return Fault(f"{path}.{self.field}" if self.field else path, self.reason, self.message)


def shown(value: Any) -> str:
    """A user's value as an error quotes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


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
