"""Telling Kubernetes where a pod is to run: by naming its node, or by an affinity that kube-scheduler has to meet."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tarragon.kube.core import PodSpec
from tarragon.kube.meta import Json, JsonObject

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME = "metadata.name"


class Placement(StrEnum):
    """DIRECT: the pod names its node, and no scheduler looks at it: one call a pod. AFFINITY: kube-scheduler binds."""

    DIRECT = "direct"
    AFFINITY = "affinity"


def directly(spec: JsonObject, node: str) -> JsonObject:
    return {**spec, "nodeName": node}


def by_affinity(spec: JsonObject, node: str) -> JsonObject:
    """Beside what the user requires of nodes. Terms are alternatives, so each of them gets the node."""
    affinity = spec.get("affinity", {})
    of_nodes = affinity.get("nodeAffinity", {})
    written = of_nodes.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    # A term that asks nothing matches nothing; with our field in it, it would match.
    terms = [term for term in written if term.get("matchExpressions") or term.get("matchFields")]
    here = {"key": _NAME, "operator": "In", "values": [node]}
    pinned = [{**term, "matchFields": [*term.get("matchFields", []), here]} for term in terms or [{}]]
    required = {REQUIRED: {"nodeSelectorTerms": pinned}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_nodes, **required}}}


def node_of(spec: PodSpec) -> str:
    """Where a pod of ours runs, or is to run; empty when that is nobody's decision yet."""
    if spec.node_name:
        return spec.node_name
    terms = _at(spec.affinity, "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    names = {_pinned(term) for term in terms} if isinstance(terms, list) else set()
    return names.pop() if len(names) == 1 else ""


def _pinned(term: Json) -> str:
    """By the last of the fields: that one is ours."""
    fields = _at(term, "matchFields")
    last = fields[-1] if isinstance(fields, list) and fields else None
    values = _at(last, "values")
    is_ours = _at(last, "key") == _NAME and _at(last, "operator") == "In" and isinstance(values, list)
    return str(values[0]) if is_ours and len(values) == 1 else ""


def _at(found: Json, *path: str) -> Json:
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
