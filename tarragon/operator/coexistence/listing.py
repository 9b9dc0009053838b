"""Lists what other training operators leave in a cluster, for the operator and for `tarragon check`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tarragon.client.errors import Forbidden, NotFound
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import Resource
from tarragon.operator.coexistence.detection import (
    DEPLOYMENTS,
    ENDPOINTS_LOCKS,
    LEASE_LOCKS,
    LOCKS,
    PODS_OF_OPERATORS,
    ClusterState,
    LeaderElectionLock,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Listing(Generic[T]):
    items: Sequence[T] = ()
    error: str = ""


class Lister(Protocol):
    """The part of a client that is used here."""

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]: ...


async def list_operators(cluster: Lister) -> ClusterState:
    """List locks, Deployments and pods. Kinds that may not be listed are noted; other errors are raised."""
    leases, endpoints, deployments, pods = await asyncio.gather(
        _locks(cluster, LEASE_LOCKS),
        _locks(cluster, ENDPOINTS_LOCKS),
        _list(cluster, DEPLOYMENTS, ALL_OBJECTS),
        _pods(cluster),
    )
    errors = {
        "Leases": leases.error,
        "Endpoints": endpoints.error,
        "Deployments": deployments.error,
        "Pods": pods.error,
    }
    return ClusterState(
        leases=leases.items,
        endpoints=endpoints.items,
        deployments=deployments.items,
        pods=pods.items,
        unreadable={kind: error for kind, error in errors.items() if error},
    )


async def _locks(cluster: Lister, resource: Resource[LeaderElectionLock]) -> _Listing[LeaderElectionLock]:
    """List locks by name, because every node has a Lease and every service has Endpoints."""
    several = await asyncio.gather(
        *(_list(cluster, resource, Selector(field_selector=f"metadata.name={name}")) for name in sorted(LOCKS))
    )
    return _joined(several)


async def _pods(cluster: Lister) -> _Listing[Pod]:
    several = await asyncio.gather(
        *(
            _list(cluster, PODS, Selector(namespace=key.namespace, field_selector=f"metadata.name={key.name}"))
            for key in PODS_OF_OPERATORS
        )
    )
    return _joined(several)


def _joined(several: Sequence[_Listing[T]]) -> _Listing[T]:
    return _Listing(
        [item for listing in several for item in listing.items],
        next((listing.error for listing in several if listing.error), ""),
    )


async def _list(cluster: Lister, resource: Resource[T], selection: Selector) -> _Listing[T]:
    try:
        return _Listing((await cluster.list(resource, selection)).items)
    except (Forbidden, NotFound) as error:
        return _Listing(error=str(error))
