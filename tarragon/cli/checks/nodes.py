"""Checks that a cluster has nodes that accept pods, and adds up their allocatable resources. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, MEMORY
from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import count
from tarragon.kube.core import Node

NODES_FORBIDDEN = Finding(
    "ok", "nodes", "you may not list nodes; only the operator needs to, and without it kube-scheduler places pods"
)
_GIB = 2**30


def check_nodes(nodes: Iterable[Node]) -> Finding:
    """Add up the resources of the nodes that are ready and schedulable."""
    found = list(nodes)
    ready = [node for node in found if node.is_ready and not node.spec.unschedulable]
    if not ready:
        none_ready = f"none of {count(len(found), 'node')} is ready and schedulable: jobs wait until one is"
        text = none_ready if found else "the cluster has no nodes: jobs wait until it has one"
        return Finding("warning", "nodes", text, "kubectl get nodes")
    total: Counter[str] = Counter()
    for node in ready:
        total.update(_amounts(node))
    number = count(len(ready), "node") + (f" of {len(found)}" if len(ready) < len(found) else "")
    parts = [f"{total[CPU] / 1000:.0f} CPUs", f"{total[MEMORY] / 1000 / _GIB:.0f} GiB"]
    parts += [f"{amount // 1000} {name}" for name, amount in sorted(total.items()) if "/" in name and amount]
    return Finding("ok", "nodes", f"{number} with {', '.join(parts)}")


def _amounts(node: Node) -> dict[str, int]:
    """Return the allocatable resources in thousandths. Malformed quantities, as of device plugins, are ignored."""
    found = {}
    for name, amount in node.status.allocatable.items():
        with suppress(ValueError):
            found[name] = parse_milli(amount)
    return found
