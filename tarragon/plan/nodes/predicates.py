"""The filters of kube-scheduler that look at one pod and one node only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from tarragon.kube.core import Node, PodSpec, Taint, Toleration
from tarragon.kube.meta import Json, JsonObject

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node; the node controller adds it a moment after the cordon."""

_TRANSIENT_TAINT_PREFIX = "node.kubernetes.io/"
"""The key prefix of the taints that Kubernetes itself sets on nodes with a problem."""

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
SOFT_EFFECT = "PreferNoSchedule"

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def unavailable_reason(node: Node) -> str:
    """Return why the node accepts no new pods for now (cordoned, not ready); empty if it does."""
    if node.spec.unschedulable:
        return f"is cordoned (kubectl uncordon {node.metadata.name})"
    return "" if node.is_ready else "is not ready"


def infeasible_reason(spec: PodSpec, node: Node) -> str | None:
    """Return a short reason why the pod can't run on the node, or None."""
    return _first_reason(spec, node, _RULES)


def permanent_infeasible_reason(spec: PodSpec, node: Node) -> str | None:
    """Return why the pod can't run on the node even when the node is available again, or None."""
    if not unavailable_reason(node):
        return infeasible_reason(spec, node)
    permanent_taints = [taint for taint in node.spec.taints if not taint.key.startswith(_TRANSIENT_TAINT_PREFIX)]
    available = replace(node, spec=replace(node.spec, unschedulable=False, taints=permanent_taints))
    return _first_reason(spec, available, [rule for rule in _RULES if rule is not _is_not_ready])


def _first_reason(spec: PodSpec, node: Node, rules: Iterable[Callable[[PodSpec, Node], str | None]]) -> str | None:
    for rule in rules:
        reason = rule(spec, node)
        if reason is not None:
            return reason
    return None


def matches_node_selection(spec: PodSpec, node: Node) -> bool:
    """Whether the node matches the pod's node selector and required node affinity."""
    return _lacks_label(spec, node) is None and _fails_node_affinity(spec, node) is None


def tolerates_taints(spec: PodSpec, node: Node) -> bool:
    return _has_untolerated_taint(spec, node) is None


def untolerated_soft_taints(spec: PodSpec, node: Node) -> int:
    """Return the number of PreferNoSchedule taints of the node that the pod does not tolerate."""
    soft_taints = (taint for taint in node.spec.taints if taint.effect == SOFT_EFFECT)
    return sum(not any(_tolerates(toleration, taint) for toleration in spec.tolerations) for taint in soft_taints)


def required_node_affinity(spec: PodSpec) -> JsonObject:
    """Return the pod's required node affinity; empty if it has none."""
    return _as_map(
        _as_map(_as_map(spec.affinity).get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution")
    )


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


def _names_another_node(spec: PodSpec, node: Node) -> str | None:
    return "the pod names another node" if spec.node_name not in {"", node.metadata.name} else None


def _is_not_ready(_: PodSpec, node: Node) -> str | None:
    return None if node.is_ready else "it is not ready"


def _has_untolerated_taint(spec: PodSpec, node: Node) -> str | None:
    for taint in _hard_taints(node):
        if not any(_tolerates(toleration, taint) for toleration in spec.tolerations):
            return f"its taint {taint.key} is not tolerated"
    return None


def _lacks_label(spec: PodSpec, node: Node) -> str | None:
    labels = node.metadata.labels
    missing = (f"{name}={value}" for name, value in spec.node_selector.items() if labels.get(name) != value)
    first = next(missing, None)
    return None if first is None else f"it has no label {first}"


def _fails_node_affinity(spec: PodSpec, node: Node) -> str | None:
    required = required_node_affinity(spec)
    if not required:
        return None
    return None if matches_node_selector(required, node) else "it does not match the required node affinity"


_RULES = (_names_another_node, _is_not_ready, _has_untolerated_taint, _lacks_label, _fails_node_affinity)


def _hard_taints(node: Node) -> Iterator[Taint]:
    if node.spec.unschedulable:
        yield UNSCHEDULABLE
    yield from (taint for taint in node.spec.taints if taint.effect in HARD_EFFECTS)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value


def _matches_expression(expression: JsonObject, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(str(expression.get("operator")))
    values = [str(value) for value in _as_list(expression.get("values"))]
    return operator is not None and operator(labels.get(str(expression.get("key"))), values)


def _is_greater(value: str | None, values: list[str]) -> bool:
    return _compare(value, values, lambda left, right: left > right)


def _is_less(value: str | None, values: list[str]) -> bool:
    return _compare(value, values, lambda left, right: left < right)


def _compare(value: str | None, values: list[str], holds: Callable[[int, int], bool]) -> bool:
    numbers = [int(text) for text in (value, *values) if text is not None and _INTEGER.fullmatch(text)]
    return len(numbers) == 2 and len(values) == 1 and holds(*numbers)  # noqa: PLR2004 - the label's, and the wanted


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
