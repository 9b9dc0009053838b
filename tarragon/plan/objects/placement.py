"""Sets the node of a pod: directly by nodeName, or by a required node affinity for kube-scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tarragon.job.places import vgpu_place
from tarragon.kube.core import Pod, PodSpec
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.scheduling.vgpu_requests import pod_vgpu

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = "metadata.name"


class Placement(StrEnum):
    """How pods get their node.

    DIRECT sets nodeName: no scheduler is involved, and a pod takes one API call. AFFINITY lets kube-scheduler bind it.
    """

    DIRECT = "direct"
    AFFINITY = "affinity"


def with_node_name(spec: JsonObject, node: str) -> JsonObject:
    return {**spec, "nodeName": node}


def with_node_affinity(spec: JsonObject, node: str) -> JsonObject:
    """Add the node to the required node affinity. Terms are alternatives, so each of the user's terms gets the node."""
    affinity = spec.get("affinity", {})
    node_affinity = affinity.get("nodeAffinity", {})
    user_terms = node_affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    # An empty term matches no node; with our field in it, it would match.
    terms = [term for term in user_terms if term.get("matchExpressions") or term.get("matchFields")]
    node_term = {"key": _NAME, "operator": "In", "values": [node]}
    terms_with_node = [{**term, "matchFields": [*term.get("matchFields", []), node_term]} for term in terms or [{}]]
    required = {REQUIRED: {"nodeSelectorTerms": terms_with_node}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**node_affinity, **required}}}


def assigned_node(spec: PodSpec) -> str:
    """Return the node on which one of our pods runs or will run; empty if that is not decided yet."""
    if spec.node_name:
        return spec.node_name
    terms = _nested(spec.affinity, "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    names = {_pinned_node(term) for term in terms} if isinstance(terms, list) else set()
    return names.pop() if len(names) == 1 else ""


def assigned_place(pod: Pod) -> str:
    """Return the place at which one of our pods runs or will run: its node, with the vGPU that it shares."""
    return _place(pod, assigned_node(pod.spec))


def bound_place(pod: Pod) -> str:
    """Return the place to which a pod is bound; empty until kube-scheduler has bound it."""
    return _place(pod, pod.spec.node_name)


def _place(pod: Pod, node: str) -> str:
    number = pod_vgpu(pod)
    return node if not node or number is None else vgpu_place(node, number)


def _pinned_node(term: Json) -> str:
    """The node that a term pins the pod to. Only the last field can be the one that `with_node_affinity` added."""
    fields = _nested(term, "matchFields")
    last = fields[-1] if isinstance(fields, list) and fields else None
    values = _nested(last, "values")
    is_ours = _nested(last, "key") == _NAME and _nested(last, "operator") == "In" and isinstance(values, list)
    return str(values[0]) if is_ours and len(values) == 1 else ""


def _nested(found: Json, *path: str) -> Json:
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
