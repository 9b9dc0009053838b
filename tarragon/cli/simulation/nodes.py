"""Reads the nodes of a context, for simulations of other jobs on them."""

from __future__ import annotations

from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.resolving import resolve_target
from tarragon.kube.core import NODES
from tarragon.simulator.engine import SimulatedCluster
from tarragon.simulator.traces.clusters import cluster_of, devices_in


async def nodes_of_context(settings: GlobalOptions) -> SimulatedCluster:
    """Return the nodes that accept pods and have GPUs. Raises TarragonError if there is none."""
    target = resolve_target(settings)
    async with target.reading() as reader:
        nodes = (await reader.list(NODES)).items
    devices = {node.metadata.name: devices_in(node.status.allocatable) for node in nodes if not node.spec.unschedulable}
    return cluster_of(devices, target.name)
