"""Which pods a quota is about, where it is not about all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.validation.pods import quality_of_service


def is_in_scope(quota: Mapping[str, Any], pod: Mapping[str, Any] | None) -> bool:
    """Whether a quota counts a pod; None is an object that is no pod: a quota with scopes counts none of these."""
    scopes = list(_scopes(quota.get("spec") or {}))
    return not scopes or (pod is not None and all(_holds(scope, pod) for scope in scopes))


def _scopes(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from ({"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ())
    yield from (spec.get("scopeSelector") or {}).get("matchExpressions") or ()


def _holds(scope: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    spec = pod.get("spec") or {}
    match scope.get("scopeName"):
        case "BestEffort":
            return quality_of_service(spec) == "BestEffort"
        case "NotBestEffort":
            return quality_of_service(spec) != "BestEffort"
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "PriorityClass":
            return _is_among(scope, str(spec.get("priorityClassName") or ""))
        case _:
            return True


def _is_among(scope: Mapping[str, Any], name: str) -> bool:
    values = scope.get("values") or ()
    match scope.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)
