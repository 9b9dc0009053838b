"""Which nodes a pod template may use, whatever is free there, and why the others are not eligible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tarragon.kube.core import Node, PodSpec, Taint
from tarragon.kube.meta import JsonObject
from tarragon.kube.scheduling.node_affinity import matches_required_affinity, missing_label
from tarragon.kube.scheduling.taints import HARD_EFFECTS, is_tolerated, untolerated_taint
from tarragon.plan.nodes.replica_requests import pod_spec
from tarragon.plan.nodes.storage import VolumeTopology
from tarragon.scheduling.api.snapshot import PressuredNodes

MAX_LISTED = 3
"""How many nodes and reasons are listed when no node is eligible for a pod."""

_TRANSIENT_TAINT_PREFIX = "node.kubernetes.io/"
"""The key prefix of the taints that Kubernetes itself sets on nodes with a problem."""

_NOT_USABLE = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
"""The taints of nodes that can start no pods yet, or no longer. A new node may be ready before they are removed."""


_PRESSURE = frozenset(
    {"node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/pid-pressure"}
)
"""The taints of nodes that run short of something. They pass by themselves, and pods may tolerate them."""


@dataclass(frozen=True, slots=True)
class TemplateNodes:
    """The nodes that accept pods of a template and can use its volumes, whatever is free there."""

    eligible: frozenset[str]
    """These include nodes that are temporarily unavailable: the scheduler excludes them when it assigns nodes."""
    pressured: PressuredNodes


def template_nodes(
    template: JsonObject, nodes: Iterable[Node], reaches: Sequence[VolumeTopology] = ()
) -> TemplateNodes:
    spec = pod_spec(template)
    eligible: set[str] = set()
    pressured: dict[str, str] = {}
    for node in nodes:
        if not all(reach.matches(node) for reach in reaches):
            continue
        if permanent_infeasible_reason(spec, node) is None:
            eligible.add(node.metadata.name)
        elif reason := pressure_reason(spec, node):
            pressured[node.metadata.name] = reason
    return TemplateNodes(frozenset(eligible), PressuredNodes(pressured))


def pressure_reason(spec: PodSpec, node: Node) -> str:
    """Return why the node refuses the pod while it is under pressure; empty if that is not all that is in the way."""
    taint = _untolerated_pressure(spec, node)
    if taint is None or unavailable_reason(node):
        return ""
    rest = [each for each in node.spec.taints if each.key not in _PRESSURE]
    relieved = replace(node, spec=replace(node.spec, taints=rest))
    return "" if infeasible_reason(spec, relieved) else f"has the taint {taint.key}"


def no_eligible_node_message(template: JsonObject, nodes: Iterable[Node]) -> str:
    """Return why no node is eligible for a template, grouped by reason: `nodes a, b: it has no label disk=ssd`."""
    spec = pod_spec(template)
    node_names_by_reason: dict[str, list[str]] = {}
    for node in nodes:
        reason = permanent_infeasible_reason(spec, node) or "the pod's volumes are not available there"
        node_names_by_reason.setdefault(reason, []).append(node.metadata.name)
    groups = sorted(node_names_by_reason.items(), key=lambda group: -len(group[1]))
    return "; ".join(f"{_node_list(names)}: {reason}" for reason, names in groups[:MAX_LISTED])


def unavailable_reason(node: Node) -> str:
    """Return why the node accepts no new pods for now (cordoned, not ready, not usable yet); empty if it does.

    That it runs out of memory or disk is no reason: pods may tolerate that taint.
    """
    if node.spec.unschedulable:
        return f"is cordoned (kubectl uncordon {node.metadata.name})"
    if not node.is_ready:
        return "is not ready"
    taint = next((each for each in node.spec.taints if each.key in _NOT_USABLE and each.effect in HARD_EFFECTS), None)
    return "" if taint is None else f"has the taint {taint.key}"


def infeasible_reason(spec: PodSpec, node: Node) -> str | None:
    """Return a short reason why the pod can't run on the node, or None."""
    return _first_reason(spec, node, _RULES)


def permanent_infeasible_reason(spec: PodSpec, node: Node) -> str | None:
    """Return why the pod can't run on the node even when the node is available again, or None."""
    if not unavailable_reason(node):
        return infeasible_reason(spec, node)
    permanent_taints = [taint for taint in node.spec.taints if not _is_transient(taint)]
    available = replace(node, spec=replace(node.spec, unschedulable=False, taints=permanent_taints))
    return _first_reason(spec, available, [rule for rule in _RULES if rule is not _is_not_ready])


def _untolerated_pressure(spec: PodSpec, node: Node) -> Taint | None:
    taints = (each for each in node.spec.taints if each.key in _PRESSURE and each.effect in HARD_EFFECTS)
    return next((each for each in taints if not is_tolerated(each, spec.tolerations)), None)


def _is_transient(taint: Taint) -> bool:
    return taint.key.startswith(_TRANSIENT_TAINT_PREFIX) or taint.key in _NOT_USABLE


def _node_list(names: Sequence[str]) -> str:
    if len(names) > MAX_LISTED:
        return f"{len(names)} nodes"
    return f"node{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}"


def _first_reason(spec: PodSpec, node: Node, rules: Iterable[Callable[[PodSpec, Node], str | None]]) -> str | None:
    for rule in rules:
        reason = rule(spec, node)
        if reason is not None:
            return reason
    return None


def _names_another_node(spec: PodSpec, node: Node) -> str | None:
    return "the pod names another node" if spec.node_name not in {"", node.metadata.name} else None


def _is_not_ready(_: PodSpec, node: Node) -> str | None:
    return None if node.is_ready else "it is not ready"


def _has_untolerated_taint(spec: PodSpec, node: Node) -> str | None:
    taint = untolerated_taint(spec.tolerations, node)
    return None if taint is None else f"its taint {taint.key} is not tolerated"


def _lacks_label(spec: PodSpec, node: Node) -> str | None:
    label = missing_label(spec, node)
    return None if label is None else f"it has no label {label}"


def _fails_node_affinity(spec: PodSpec, node: Node) -> str | None:
    return None if matches_required_affinity(spec, node) else "it does not match the required node affinity"


_RULES = (_names_another_node, _is_not_ready, _has_untolerated_taint, _lacks_label, _fails_node_affinity)
