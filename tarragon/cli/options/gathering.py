"""Passes several options to a command as one dataclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def option_group(name: str, kind: type) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorates a command: its options named like the fields of `kind` arrive as one `kind`, in the argument `name`."""
    field_names = [field.name for field in fields(kind)]

    def gather(command: Callable[P, None]) -> Callable[P, None]:
        @wraps(command)
        def called(*given: P.args, **options: P.kwargs) -> None:
            others: dict[str, object] = dict(options)
            value = kind(**{each: others.pop(each) for each in field_names})
            command(*given, **others, **{name: value})  # type: ignore[arg-type]  # click has them from the options

        return called

    return gather
