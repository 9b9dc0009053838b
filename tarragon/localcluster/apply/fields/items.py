"""The items of a list by their labels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from tarragon.localcluster.apply.fields import labels
from tarragon.localcluster.apply.fields.types import Type


class KeylessError(ValueError):
    """An item can't be known by its keys; the text is what a server says."""


SEVERAL: Final = object()
"""In place of an item: there are more of this label than one."""


def label(of_list: Type, item: Any) -> str:
    """Raises KeylessError."""
    if not of_list.keys:
        return _of_itself(item)
    if not isinstance(item, dict):
        what = "non-map elements" if item is not None else "a null element"
        raise KeylessError(f"associative list with keys may not have {what}")
    found = {key: item.get(key, default) for key, default in of_list.keys}
    for key, value in found.items():
        if value is None:
            words = f'associative list with keys has an element that omits key field "{key}"'
            raise KeylessError(f"{words} (and doesn't have default value)")
    return labels.of_keys(found)


def labelled(of_list: Type, items: Iterable[Any]) -> dict[str, Any]:
    """Items that cannot be known are left out: of what is stored there are none, or they are nobody's."""
    found: dict[str, Any] = {}
    key = of_list.keys[0][0] if len(of_list.keys) == 1 else ""
    for item in items:
        value = item.get(key) if key and type(item) is dict else None
        if type(value) is str:
            mark = _of_text(key, value)
        else:
            try:
                mark = label(of_list, item)
            except KeylessError:
                continue
        found[mark] = SEVERAL if mark in found else item
    return found


def _of_itself(item: Any) -> str:
    match item:
        case dict():
            raise KeylessError("associative list without keys has an element that's a map type")
        case list():
            raise KeylessError("not supported: associative list with lists as elements")
        case None:
            raise KeylessError("associative list without keys has an element that's an explicit null")
        case _:
            return labels.of_value(item)


@lru_cache(maxsize=4096)
def _of_text(key: str, value: str) -> str:
    """The same names come again and again: of containers, variables, conditions."""
    return labels.of_keys({key: value})
