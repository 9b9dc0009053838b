"""May this pod run on this node? The filters of kube-scheduler that look at one pod and one node only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from tarragon.kube.core import Node, PodSpec, Taint, Toleration
from tarragon.kube.meta import Json, JsonObject

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What cordoning amounts to; the node controller adds it a moment later."""

_FOR_A_WHILE = "node.kubernetes.io/"
"""How the taints are called with which Kubernetes itself marks a node that is not at its best."""

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
SOFT_EFFECT = "PreferNoSchedule"

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def away(node: Node) -> str:
    """Why it takes nobody for the time being; empty where it does."""
    if node.spec.unschedulable:
        return f"is cordoned (kubectl uncordon {node.metadata.name})"
    return "" if node.is_ready else "is not ready"


def refusal(spec: PodSpec, node: Node) -> str | None:
    """Why the node won't take the pod, in a few words, or None."""
    return _refused(spec, node, _RULES)


def lasting_refusal(spec: PodSpec, node: Node) -> str | None:
    """The same of a node that is away, for when it is back."""
    if not away(node):
        return refusal(spec, node)
    lasting = [taint for taint in node.spec.taints if not taint.key.startswith(_FOR_A_WHILE)]
    back = replace(node, spec=replace(node.spec, unschedulable=False, taints=lasting))
    return _refused(spec, back, [rule for rule in _RULES if rule is not _is_not_ready])


def _refused(spec: PodSpec, node: Node, rules: Iterable[Callable[[PodSpec, Node], str | None]]) -> str | None:
    for rule in rules:
        reason = rule(spec, node)
        if reason is not None:
            return reason
    return None


def is_wanted(spec: PodSpec, node: Node) -> bool:
    """By the pod's selector and its required node affinity."""
    return _lacks_label(spec, node) is None and _is_unlike(spec, node) is None


def is_tolerated(spec: PodSpec, node: Node) -> bool:
    return _has_taint(spec, node) is None


def unwelcome(spec: PodSpec, node: Node) -> int:
    """The taints of the node for which the pod had better go elsewhere."""
    soft = (taint for taint in node.spec.taints if taint.effect == SOFT_EFFECT)
    return sum(not any(_tolerates(toleration, taint) for toleration in spec.tolerations) for taint in soft)


def required_of_nodes(spec: PodSpec) -> JsonObject:
    """The pod's required node affinity, empty where it has none."""
    return _map(_map(_map(spec.affinity).get("nodeAffinity")).get("requiredDuringSchedulingIgnoredDuringExecution"))


def is_selected(selector: JsonObject, node: Node) -> bool:
    """Terms are alternatives; the expressions within one must all hold. A term without any matches nothing."""
    terms = [_map(term) for term in _list(selector.get("nodeSelectorTerms"))]
    return any(is_matched(term, node) for term in terms)


def is_matched(term: JsonObject, node: Node) -> bool:
    """By everything that one term says; one that says nothing matches nothing."""
    expressions = [_map(each) for each in _list(term.get("matchExpressions"))]
    fields = [_map(each) for each in _list(term.get("matchFields"))]
    if not expressions and not fields:
        return False
    of_fields = {"metadata.name": node.metadata.name}
    return all(_holds(each, node.metadata.labels) for each in expressions) and all(
        _holds(each, of_fields) for each in fields
    )


def _is_bound_elsewhere(spec: PodSpec, node: Node) -> str | None:
    return "the pod names another node" if spec.node_name not in {"", node.metadata.name} else None


def _is_not_ready(_: PodSpec, node: Node) -> str | None:
    return None if node.is_ready else "it is not ready"


def _has_taint(spec: PodSpec, node: Node) -> str | None:
    for taint in _hard_taints(node):
        if not any(_tolerates(toleration, taint) for toleration in spec.tolerations):
            return f"its taint {taint.key} is not tolerated"
    return None


def _lacks_label(spec: PodSpec, node: Node) -> str | None:
    labels = node.metadata.labels
    missing = (f"{name}={value}" for name, value in spec.node_selector.items() if labels.get(name) != value)
    first = next(missing, None)
    return None if first is None else f"it has no label {first}"


def _is_unlike(spec: PodSpec, node: Node) -> str | None:
    required = required_of_nodes(spec)
    if not required:
        return None
    return None if is_selected(required, node) else "it does not match the required node affinity"


_RULES = (_is_bound_elsewhere, _is_not_ready, _has_taint, _lacks_label, _is_unlike)


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


def _holds(expression: JsonObject, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(str(expression.get("operator")))
    values = [str(value) for value in _list(expression.get("values"))]
    return operator is not None and operator(labels.get(str(expression.get("key"))), values)


def _is_above(found: str | None, values: list[str]) -> bool:
    return _compared(found, values, lambda left, right: left > right)


def _is_below(found: str | None, values: list[str]) -> bool:
    return _compared(found, values, lambda left, right: left < right)


def _compared(found: str | None, values: list[str], holds: Callable[[int, int], bool]) -> bool:
    numbers = [int(text) for text in (found, *values) if text is not None and _WHOLE.fullmatch(text)]
    return len(numbers) == 2 and len(values) == 1 and holds(*numbers)  # noqa: PLR2004 - the label's, and the wanted


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, _: found is not None,
    "DoesNotExist": lambda found, _: found is None,
    "Gt": _is_above,
    "Lt": _is_below,
}


def _map(found: Json) -> JsonObject:
    return found if isinstance(found, Mapping) else {}


def _list(found: Json) -> list[Json]:
    return list(found) if isinstance(found, list | tuple) else []
