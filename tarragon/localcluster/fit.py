"""The filters of the default scheduler: whether a pod fits a node, and the reasons that kube-scheduler gives if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import PODS, Resources, add_resources, maximum
from tarragon.kube.core import Container, Node, Pod, Taint, Toleration

OVERCOMMIT_ANNOTATION = "tarragon.dev/overcommit"
"""Node annotation: comma-separated resources (such as `cpu`) that may be overcommitted."""
HOST_PORTS = "hostPorts"
"""A value of the annotation: host ports of pods on the node never conflict."""

_REPELLING_EFFECTS = {"NoSchedule", "NoExecute"}
_UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def requests_of_pod(pod: Pod) -> dict[str, int]:
    """The resource requests of a pod in thousandths: the sum of its containers or the largest init container.

    Restartable init containers (sidecars) keep running, so they are added to all containers that start after them.
    """
    needed: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = add_resources([sidecars, _requests(container)])
            needed = maximum(needed, sidecars)
        else:
            needed = maximum(needed, add_resources([sidecars, _requests(container)]))
    running = add_resources([sidecars, *map(_requests, pod.spec.containers)])
    overhead = _amounts(pod.spec.overhead)
    return add_resources([maximum(needed, running), overhead, {PODS: 1000}])


def node_allocatable(node: Node) -> dict[str, int]:
    """The allocatable resources of a node in thousandths; its capacity if it reports no allocatable."""
    return _amounts(node.status.allocatable or node.status.capacity)


def filter_reasons(pod: Pod, node: Node, free: Resources) -> list[str]:
    """The reasons why the pod does not fit the node; empty if it fits.

    As in kube-scheduler, resources are checked last, and only they give more than one reason.
    """
    if not node.is_ready:
        return ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"]
    if node.spec.unschedulable and not _tolerated(_UNSCHEDULABLE, pod.spec.tolerations):
        return ["node(s) were unschedulable"]
    for taint in node.spec.taints:
        if taint.effect in _REPELLING_EFFECTS and not _tolerated(taint, pod.spec.tolerations):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not _matches_node_affinity(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    overcommitted = {name.strip() for name in node.metadata.annotations.get(OVERCOMMIT_ANNOTATION, "").split(",")}
    return [
        "Too many pods" if name == PODS else f"Insufficient {name}"
        for name, amount in sorted(requests_of_pod(pod).items())
        if amount > max(0, free.get(name, 0)) and name not in overcommitted
    ]


def unschedulable_message(nodes: int, reasons: Iterable[str]) -> str:
    """A summary of all nodes with counted reasons: `0/1 nodes are available: 1 Insufficient memory.`, for instance."""
    if not nodes:
        return "no nodes available to schedule pods"
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    return f"0/{nodes} nodes are available: {', '.join(counted)}."


def _requests(container: Container) -> dict[str, int]:
    """The requests of a container. A limit without a request counts as a request."""
    return _amounts({**container.resources.limits, **container.resources.requests})


def _amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    return {name: _amount(quantity) for name, quantity in quantities.items()}


def _amount(quantity: str | float) -> int:
    try:
        return parse_milli(quantity)
    except ValueError:
        # The API rejects such quantities. If one is stored nevertheless, it must not block all other pods.
        return 0


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or bool(toleration.key and toleration.value == taint.value)


def _matches_node_affinity(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        return False
    terms = _required_terms(pod.spec.affinity)
    return terms is None or any(_term_matches(term, node) for term in terms)


def _required_terms(affinity: Any) -> list[Any] | None:
    """The terms of the required node affinity, of which one must match; None if the pod has none."""
    affinity_field = affinity
    for step in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"):
        affinity_field = affinity_field.get(step) if isinstance(affinity_field, dict) else None
    return affinity_field if isinstance(affinity_field, list) else None


def _term_matches(term: Mapping[str, Any], node: Node) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    node_name_field = {"metadata.name": node.metadata.name}
    return all(_expression_matches(expression, node.metadata.labels) for expression in expressions) and all(
        _expression_matches(expression, node_name_field) for expression in fields
    )


def _expression_matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(str(expression.get("key")))
    values = [str(item) for item in expression.get("values") or []]
    check = _OPERATORS.get(str(expression.get("operator")))
    return check is not None and check(value, values)


def _integer_comparison(is_larger: Callable[[int, int], bool]) -> Callable[[str | None, Sequence[str]], bool]:
    def check(value: str | None, values: Sequence[str]) -> bool:
        try:
            return value is not None and is_larger(int(value), int(values[0]))
        except (ValueError, IndexError):
            return False

    return check


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
    "Gt": _integer_comparison(lambda value, bound: value > bound),
    "Lt": _integer_comparison(lambda value, bound: value < bound),
}
