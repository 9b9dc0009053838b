"""Sets of replicas as index ranges such as `0-3,5`, so that ten thousand replicas fit into a status."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tarragon.job.model import Replica, ReplicaType, parse_replica_type
from tarragon.kube.meta import Json

MAX_REPLICAS = 100_000
"""Larger sets are rejected, because users can edit the status and `0-999999999` would exhaust the memory."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def format_ranges(indexes: Iterable[int]) -> str:
    """`{0, 1, 2, 5}` -> `0-2,5`."""
    spans: list[tuple[int, int]] = []
    for index in sorted(set(indexes)):
        if spans and spans[-1][1] == index - 1:
            spans[-1] = (spans[-1][0], index)
        else:
            spans.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def parse_ranges(text: Json) -> frozenset[int]:
    """Parse what `format_ranges` wrote. Raises ValueError or TypeError for anything else."""
    if not isinstance(text, str):
        raise TypeError("index ranges must be a string such as 0-3,5")
    found: set[int] = set()
    left = MAX_REPLICAS
    for part in filter(None, text.split(",")):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not an index range; write for example 0-3,5")
        first, last = int(match[1]), int(match[2] or match[1])
        left -= 1 + max(0, last - first)
        if left < 0:
            raise ValueError(f"more than {MAX_REPLICAS} replicas")
        found.update(range(first, last + 1))
    return frozenset(found)


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
        Replica(parse_replica_type(kind), index) for kind, text in texts.items() for index in parse_ranges(text)
    )


def describe_replicas(members: Iterable[Replica]) -> str:
    """The replicas for humans: `worker 0-3,5, ps 0`."""
    return ", ".join(f"{kind.lower()} {text}" for kind, text in format_replicas(members).items())
