"""The Lease of a node in kube-node-lease: the cheap heartbeat that a node controller waits for."""

from __future__ import annotations

from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Cluster
from tarragon.kube.codec import micro_timestamp
from tarragon.kube.core import LEASES, NODES
from tarragon.kube.meta import Key

NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
"""After this long without a heartbeat a node controller takes the node for lost, whatever stands in the Lease."""


async def renew(cluster: Cluster, node: str, clock: Clock, seconds: int = LEASE_SECONDS) -> None:
    """Renew it for so many seconds, or make it.

    Raises ApiError; NotFound where the cluster keeps no leases, or knows no such node.
    """
    key = Key(NAMESPACE, node)
    renewed = {"spec": {"renewTime": micro_timestamp(clock.now()), "leaseDurationSeconds": seconds}}
    try:
        await cluster.patch(LEASES, key, renewed)
    except NotFound:
        try:
            await cluster.create(LEASES, await _new(cluster, node, renewed["spec"]))
        except AlreadyExists:
            await cluster.patch(LEASES, key, renewed)


async def _new(cluster: Cluster, node: str, renewed: dict[str, Any]) -> dict[str, Any]:
    """It belongs to the Node, and goes with it."""
    owner = await cluster.get(NODES, Key("", node))
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": node,
            "namespace": NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid}],
        },
        "spec": {"holderIdentity": node, **renewed},
    }
