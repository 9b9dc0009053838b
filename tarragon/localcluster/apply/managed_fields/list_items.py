"""Labels of list items: their keys, or in a set their value."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from tarragon.localcluster.apply.managed_fields import path_elements
from tarragon.localcluster.apply.managed_fields.field_types import FieldType


class KeylessError(ValueError):
    """An item has no usable key. The message is a kube-apiserver's."""


REPEATED: Final = object()
"""Stands for all items of a label that occurs more than once."""


def label(of_list: FieldType, item: Any) -> str:
    """The label of an item. Raises KeylessError."""
    if not of_list.keys:
        return _value_label(item)
    if not isinstance(item, dict):
        what = "non-map elements" if item is not None else "a null element"
        raise KeylessError(f"associative list with keys may not have {what}")
    found = {key: item.get(key, default) for key, default in of_list.keys}
    for key, value in found.items():
        if value is None:
            words = f'associative list with keys has an element that omits key field "{key}"'
            raise KeylessError(f"{words} (and doesn't have default value)")
    return path_elements.of_keys(found)


def items_by_label(of_list: FieldType, items: Iterable[Any]) -> dict[str, Any]:
    """Items by label. Items without one are left out: stored objects have none, or nobody owns them."""
    found: dict[str, Any] = {}
    key = of_list.keys[0][0] if len(of_list.keys) == 1 else ""
    for item in items:
        value = item.get(key) if key and type(item) is dict else None
        if type(value) is str:
            item_label = _key_label(key, value)
        else:
            try:
                item_label = label(of_list, item)
            except KeylessError:
                continue
        found[item_label] = REPEATED if item_label in found else item
    return found


def _value_label(item: Any) -> str:
    match item:
        case dict():
            raise KeylessError("associative list without keys has an element that's a map type")
        case list():
            raise KeylessError("not supported: associative list with lists as elements")
        case None:
            raise KeylessError("associative list without keys has an element that's an explicit null")
        case _:
            return path_elements.of_value(item)


@lru_cache(maxsize=4096)
def _key_label(key: str, value: str) -> str:
    """Cached, because the same names recur: of containers, variables, conditions."""
    return path_elements.of_keys({key: value})
