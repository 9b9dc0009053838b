"""Checks that a cluster has nodes that accept pods, and adds up their allocatable resources. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU
from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import count
from tarragon.kube.core import Node
from tarragon.kube.scheduling.hami import HAMI_SCHEDULER, hami_gpus
from tarragon.kube.scheduling.node_gpu_sharing import HAMI_ANNOTATION, GpuSharing, gpu_sharing

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


def check_hami(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Say on which nodes HAMi shares the GPUs, and on which it is to do so and reports none."""
    names = {node.metadata.name: bool(hami_gpus(node)) for node in nodes if gpu_sharing(node) is GpuSharing.HAMI}
    sharing = sorted(name for name, has_gpus in names.items() if has_gpus)
    without = sorted(names.keys() - set(sharing))
    if sharing:
        text = f"HAMi shares those of {_named(sharing)}: pods with GPUs go through its scheduler {HAMI_SCHEDULER}"
        yield Finding("ok", "GPUs", text)
    if without:
        text = f"HAMi reports none that works on {_named(without)}: jobs get no GPUs there"
        yield Finding(
            "warning", "GPUs", text, f"see its annotation {HAMI_ANNOTATION} and `tarragon docs gpu-sharing#with-hami`"
        )


def _named(nodes: Sequence[str]) -> str:
    """Name the first node, and count the others."""
    return f"node {nodes[0]}" + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")


def _amounts(node: Node) -> dict[str, int]:
    """Return the allocatable resources in thousandths. Malformed quantities, as of device plugins, are ignored.

    HAMi's device plugin offers each GPU several times, which would be no number of GPUs.
    """
    found = {}
    for name, amount in node.status.allocatable.items():
        with suppress(ValueError):
            found[name] = parse_milli(amount)
    if gpu_sharing(node) is not GpuSharing.HAMI:
        return found
    return {**found, NVIDIA_GPU: min(len(hami_gpus(node)) * 1000, found.get(NVIDIA_GPU, 0))}
