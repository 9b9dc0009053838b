"""Node selectors and required node affinity, by the rules of `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.

Affinity is read from JSON, because the embedded cluster and volumes have node selectors that no type here decodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tarragon.kube.core import Node, PodSpec
from tarragon.kube.meta import Json, JsonObject

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
_INT64 = range(-(2**63), 2**63)


def matches_node_affinity(spec: PodSpec, node: Node) -> bool:
    """Whether the node matches the pod's node selector and required node affinity."""
    return missing_label(spec, node) is None and matches_required_affinity(spec, node)


def missing_label(spec: PodSpec, node: Node) -> str | None:
    """Return a label that the pod's node selector requires and the node lacks, as `name=value`."""
    labels = node.metadata.labels
    for name, value in spec.node_selector.items():
        if labels.get(name) != value:
            return f"{name}={value}"
    return None


def matches_required_affinity(spec: PodSpec, node: Node) -> bool:
    required = required_node_affinity(spec)
    return required is None or matches_node_selector(required, node)


def required_node_affinity(spec: PodSpec) -> JsonObject | None:
    """Return the node selector of the pod's required node affinity; None if it has none."""
    affinity = _as_map(_as_map(spec.affinity).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required if isinstance(required, Mapping) else None


def matches_node_selector(selector: JsonObject, node: Node) -> bool:
    """Whether a node selector matches the node: one of its terms must match."""
    terms = [_as_map(term) for term in _as_list(selector.get("nodeSelectorTerms"))]
    return any(matches_node_selector_term(term, node) for term in terms)


def matches_node_selector_term(term: JsonObject, node: Node) -> bool:
    """Whether all expressions of a node selector term match the node; an empty term matches no node."""
    expressions = [_as_map(each) for each in _as_list(term.get("matchExpressions"))]
    fields = [_as_map(each) for each in _as_list(term.get("matchFields"))]
    if not expressions and not fields:
        return False
    node_fields = {"metadata.name": node.metadata.name}
    return all(_matches_expression(each, node.metadata.labels) for each in expressions) and all(
        _matches_expression(each, node_fields) for each in fields
    )


def _matches_expression(expression: JsonObject, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(str(expression.get("operator")))
    values = [str(value) for value in _as_list(expression.get("values"))]
    return operator is not None and operator(labels.get(str(expression.get("key"))), values)


def _is_greater(value: str | None, values: list[str]) -> bool:
    return _compare(value, values, lambda left, right: left > right)


def _is_less(value: str | None, values: list[str]) -> bool:
    return _compare(value, values, lambda left, right: left < right)


def _compare(value: str | None, values: list[str], holds: Callable[[int, int], bool]) -> bool:
    numbers = [number for text in (value, *values) if (number := _integer(text)) is not None]
    return len(numbers) == 2 and len(values) == 1 and holds(*numbers)  # noqa: PLR2004 - the label's, and the wanted


def _integer(text: str | None) -> int | None:
    """Return a number as Go's ParseInt reads it: int() accepts more, and Go no more than 64 bits."""
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": _is_greater,
    "Lt": _is_less,
}


def _as_map(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _as_list(value: Json) -> list[Json]:
    return list(value) if isinstance(value, list | tuple) else []
