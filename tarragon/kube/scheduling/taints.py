"""Taints and tolerations, by the rules of `k8s.io/component-helpers/scheduling/corev1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.kube.core import Node, Taint, Toleration

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node; the node controller adds it a moment after the cordon."""

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
SOFT_EFFECT = "PreferNoSchedule"


def untolerated_taint(tolerations: Sequence[Toleration], node: Node) -> Taint | None:
    """Return the first taint that keeps a pod with these tolerations off the node. A cordon is `UNSCHEDULABLE`."""
    return next((taint for taint in _hard_taints(node) if not is_tolerated(taint, tolerations)), None)


def untolerated_soft_taints(tolerations: Sequence[Toleration], node: Node) -> int:
    """Return the number of PreferNoSchedule taints of the node that a pod does not tolerate."""
    soft_taints = (taint for taint in node.spec.taints if taint.effect == SOFT_EFFECT)
    return sum(not is_tolerated(taint, tolerations) for taint in soft_taints)


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration matches the taint. Empty fields match everything, and no operator means Equal."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def _hard_taints(node: Node) -> Iterator[Taint]:
    if node.spec.unschedulable:
        yield UNSCHEDULABLE
    yield from (taint for taint in node.spec.taints if taint.effect in HARD_EFFECTS)
