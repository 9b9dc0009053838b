"""Notes about the nodes of this machine that a user may expect to be others.

They are made when the job has begun to start: what only they need is imported then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from tarragon.base.resources import CPU
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.options.settings import embedded_home
from tarragon.client.port import Client
from tarragon.kube.core import NODES, Node

VARIABLE = "TARRAGON_UP_NODE"
"""The nodes of the cluster that the next command starts."""


def configured_nodes() -> str:
    """Returns the nodes that the user wants, if a cluster runs already, which may have others."""
    from tarragon.localcluster.home.lock import read_server

    wanted = os.environ.get(VARIABLE, "")
    server = read_server(embedded_home()) if wanted else None
    return wanted if server is not None and server.is_running() else ""


async def node_notes(cluster: Client, loaded: LoadedJob, wanted: str) -> Iterator[str]:
    """Returns notes about the job's CPUs, and about the `wanted` nodes if the cluster has others."""
    from tarragon.cli.manifest.sizing import requested_cpus, training_jobs
    from tarragon.localcluster.kubelet.node.machine import available_cpus

    requested, cores = requested_cpus(training_jobs([loaded])), available_cpus()
    if requested <= cores * 1000 and not wanted:
        return iter(())
    nodes = (await cluster.list(NODES)).items
    return filter(None, (cpu_shares_note(requested, nodes, cores), other_nodes_note(wanted, nodes)))


def cpu_shares_note(requested: int, nodes: Sequence[Node], cores: int) -> str:
    """Returns a note about a job that requests more CPUs than there are, where that does not make it wait."""
    from tarragon.kube.scheduling.node_resources import overcommitted_resources

    if requested <= cores * 1000 or not all(CPU in overcommitted_resources(node) for node in nodes):
        return ""
    return (
        f"note: the job's replicas request {requested / 1000:,g} CPUs in all, this machine has {cores}: here requests "
        "are shares, and don't make a job wait (`tarragon docs howto/nodes`)"
    )


def other_nodes_note(wanted: str, nodes: Sequence[Node]) -> str:
    """Returns a note about nodes that the user wants, in the form of the variable, if the cluster has others."""
    if not wanted or _are(wanted, nodes):
        return ""
    return (
        f"note: {VARIABLE} has no effect: the local cluster already runs, with other nodes; "
        "`tarragon down` stops it, and the next command starts it with yours"
    )


def _are(wanted: str, nodes: Sequence[Node]) -> bool:
    from tarragon.cli.targets.embedded_nodes import parse_node
    from tarragon.kube.scheduling.node_resources import node_allocatable

    try:
        flags = {flag.name: flag.capacity for flag in map(parse_node, wanted.split())}
    except click.BadParameter:
        return False
    found = {node.metadata.name: node_allocatable(node) for node in nodes}
    return flags.keys() == found.keys() and all(flags[name].items() <= found[name].items() for name in flags)
