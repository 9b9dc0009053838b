"""Options that mean something together reach their command as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def gathered(name: str, kind: type) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """The command's argument `name` is a dataclass; each of its fields is an option of that name."""
    taken = [field.name for field in fields(kind)]

    def gather(command: Callable[P, None]) -> Callable[P, None]:
        @wraps(command)
        def called(*given: P.args, **options: P.kwargs) -> None:
            others: dict[str, object] = dict(options)
            value = kind(**{each: others.pop(each) for each in taken})
            command(*given, **others, **{name: value})  # type: ignore[arg-type]  # click has them from the options

        return called

    return gather
