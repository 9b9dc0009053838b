"""Renews a node's Lease in kube-node-lease, the cheap heartbeat that a node controller expects."""

from __future__ import annotations

from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Client
from tarragon.kube.codec import format_micro_time
from tarragon.kube.core import LEASES, NODES
from tarragon.kube.meta import Key

NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
"""A node controller considers a node lost after this long without a heartbeat, whatever the Lease says."""


async def renew_lease(cluster: Client, node: str, clock: Clock, seconds: int = LEASE_SECONDS) -> None:
    """Renew the node's Lease for this duration, or create it.

    Raises ApiError; NotFound if the cluster has no Leases or no such node.
    """
    key = Key(NAMESPACE, node)
    renewed = {"spec": {"renewTime": format_micro_time(clock.now()), "leaseDurationSeconds": seconds}}
    try:
        await cluster.patch(LEASES, key, renewed)
    except NotFound:
        try:
            await cluster.create(LEASES, await _new(cluster, node, renewed["spec"]))
        except AlreadyExists:
            await cluster.patch(LEASES, key, renewed)


async def _new(cluster: Client, node: str, renewed: dict[str, Any]) -> dict[str, Any]:
    """A new Lease, owned by the Node."""
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
