"""Whether a pod may go to a node, and if not, why not, in the words of kube-scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tarragon.base.quantity import milli
from tarragon.base.resources import PODS, Resources, largest, total
from tarragon.kube.core import Container, Node, Pod, Taint, Toleration

OVERCOMMIT = "tarragon.dev/overcommit"
"""Annotation of a node: resources, comma-separated, whose requests are shares and not amounts (`cpu`)."""
HOST_PORTS = "hostPorts"
"""Among the names in it: pods of that node never collide in a port."""

_REPELS = {"NoSchedule", "NoExecute"}
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def wanted(pod: Pod) -> dict[str, int]:
    """What the pod needs at once, in thousandths: its containers together, or the largest of its init containers.

    Init containers that restart (sidecars) run beside all that comes after them.
    """
    needed: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = total([sidecars, _requests(container)])
            needed = largest(needed, sidecars)
        else:
            needed = largest(needed, total([sidecars, _requests(container)]))
    running = total([sidecars, *map(_requests, pod.spec.containers)])
    overhead = _amounts(pod.spec.overhead)
    return total([largest(needed, running), overhead, {PODS: 1000}])


def offered(node: Node) -> dict[str, int]:
    """What the node has for pods."""
    return _amounts(node.status.allocatable or node.status.capacity)


def obstacles(pod: Pod, node: Node, free: Resources) -> list[str]:
    """Every reason that keeps the pod off the node; empty when it fits. Resources are looked at last, as elsewhere."""
    if not node.is_ready:
        return ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"]
    if node.spec.unschedulable and not _tolerated(_UNSCHEDULABLE, pod.spec.tolerations):
        return ["node(s) were unschedulable"]
    for taint in node.spec.taints:
        if taint.effect in _REPELS and not _tolerated(taint, pod.spec.tolerations):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not _selected(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    shared = {name.strip() for name in node.metadata.annotations.get(OVERCOMMIT, "").split(",")}
    return [
        "Too many pods" if name == PODS else f"Insufficient {name}"
        for name, amount in sorted(wanted(pod).items())
        if amount > max(0, free.get(name, 0)) and name not in shared
    ]


def verdict(nodes: int, reasons: Iterable[str]) -> str:
    """One line over all nodes, such as `0/1 nodes are available: 1 Insufficient memory.`: equal reasons are counted."""
    if not nodes:
        return "no nodes available to schedule pods"
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    return f"0/{nodes} nodes are available: {', '.join(counted)}."


def _requests(container: Container) -> dict[str, int]:
    """A limit without a request is a request, too."""
    return _amounts({**container.resources.limits, **container.resources.requests})


def _amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    return {name: _amount(quantity) for name, quantity in quantities.items()}


def _amount(quantity: str | float) -> int:
    try:
        return milli(quantity)
    except ValueError:
        # The API refuses such a quantity. If one is stored nevertheless, it must not stop all other pods.
        return 0


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or bool(toleration.key and toleration.value == taint.value)


def _selected(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        return False
    terms = _required_terms(pod.spec.affinity)
    return terms is None or any(_term_holds(term, node) for term in terms)


def _required_terms(affinity: Any) -> list[Any] | None:
    """None when the pod requires nothing of the node. Any one of the terms is enough."""
    found = affinity
    for step in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"):
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, list) else None


def _term_holds(term: Mapping[str, Any], node: Node) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    named = {"metadata.name": node.metadata.name}
    return all(_holds(expression, node.metadata.labels) for expression in expressions) and all(
        _holds(expression, named) for expression in fields
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(str(expression.get("key")))
    values = [str(item) for item in expression.get("values") or []]
    check = _OPERATORS.get(str(expression.get("operator")))
    return check is not None and check(value, values)


def _compared(larger: Callable[[int, int], bool]) -> Callable[[str | None, Sequence[str]], bool]:
    def check(value: str | None, values: Sequence[str]) -> bool:
        try:
            return value is not None and larger(int(value), int(values[0]))
        except (ValueError, IndexError):
            return False

    return check


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
    "Gt": _compared(lambda value, bound: value > bound),
    "Lt": _compared(lambda value, bound: value < bound),
}
