"""Defaults and validation of tolerations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tarragon.kube import name_validation
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value, unsupported

Json = dict[str, Any]

_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS = 300
_OPERATORS = ("Equal", "Exists")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def add_default_tolerations(spec: Json) -> None:
    """Tolerate an unready or unreachable node for five minutes by default, as DefaultTolerationSeconds does."""
    own = list(spec.get("tolerations") or ())
    for key in _TAINTS:
        same_key = (one for one in own if (one.get("key") or key) == key)
        if not any((one.get("effect") or "NoExecute") == "NoExecute" for one in same_key):
            toleration = {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _TOLERATION_SECONDS,
            }
            spec["tolerations"] = [*(spec.get("tolerations") or ()), toleration]


def faults(path: str, tolerations: Sequence[Json]) -> Iterator[FieldError]:
    for index, one in enumerate(tolerations):
        place, key, operator = f"{path}[{index}]", one.get("key") or "", one.get("operator") or ""
        if key and (words := name_validation.qualified(key)):
            yield invalid_value(f"{place}.key", key, words)
        if not key and operator != "Exists":
            words = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid_value(f"{place}.operator", operator, words)
        if operator == "Exists" and one.get("value"):
            yield invalid_value(f"{place}.operator", one, "value must be empty when `operator` is 'Exists'")
        if operator not in {"", *_OPERATORS}:
            yield unsupported(f"{place}.operator", operator, _OPERATORS)
        if one.get("effect") and one["effect"] not in _EFFECTS:
            yield unsupported(f"{place}.effect", one["effect"], _EFFECTS)
        if one.get("tolerationSeconds") is not None and one.get("effect") != "NoExecute":
            words = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid_value(f"{place}.effect", one.get("effect", ""), words)
