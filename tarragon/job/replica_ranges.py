"""Sets of replicas as index ranges by type."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tarragon.base.index_ranges import format_ranges, parse_ranges
from tarragon.job.model import Replica, ReplicaType, parse_replica_type
from tarragon.kube.meta import Json

MAX_REPLICAS = 100_000
"""Statuses with more replicas of one type are rejected."""


def format_replicas(replicas: Iterable[Replica]) -> dict[str, str]:
    """`{"Worker": "0-3,5"}`, sorted by type."""
    found: dict[ReplicaType, list[int]] = {}
    for replica in replicas:
        found.setdefault(replica.type, []).append(replica.index)
    return {str(kind): format_ranges(found[kind]) for kind in sorted(found)}


def parse_replicas(texts: Json) -> frozenset[Replica]:
    """Parse what `format_replicas` wrote. Raises ValueError or TypeError for anything else."""
    if not isinstance(texts, Mapping):
        raise TypeError("replicas must be a map from type to index ranges")
    return frozenset(
        Replica(parse_replica_type(kind), index)
        for kind, text in texts.items()
        for index in parse_ranges(text, MAX_REPLICAS)
    )


def name_replicas(members: Collection[Replica]) -> str:
    """The replicas for humans, one of them by its name: `worker-0`."""
    return str(next(iter(members))) if len(members) == 1 else describe_replicas(members)


def describe_replicas(members: Iterable[Replica]) -> str:
    """The replicas for humans: `worker 0-3,5, ps 0`."""
    return ", ".join(f"{kind.lower()} {text}" for kind, text in format_replicas(members).items())
