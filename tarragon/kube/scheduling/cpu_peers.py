"""Which pods set no CPUs and so share those of their machine, and with how many programs of their gang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tarragon.base.resources import CPU

CPU_PEERS_ANNOTATION = "tarragon.dev/cpu-peers"
"""On a pod of the embedded cluster: how many programs its job runs in pods that set no CPUs, its own included. The
first of them starts before the last pod exists, and must not take the cores of all."""
MOST_PEERS = 10**6
"""A greater number was not written by Tarragon."""


def sets_cpus(resources: Iterable[Mapping[str, Mapping[str, Any]]]) -> bool:
    """Whether one of the containers requests CPUs or limits them. `resources` are those of the containers."""
    return any(CPU in (each.get(field) or {}) for each in resources for field in ("requests", "limits"))


def recorded_peers(annotations: Mapping[str, str]) -> int | None:
    """The number on a pod; None if there is none that Tarragon has written."""
    text = annotations.get(CPU_PEERS_ANNOTATION, "")
    is_number = text.isascii() and text.isdecimal() and len(text) < len(str(MOST_PEERS))
    return int(text) if is_number and int(text) else None
