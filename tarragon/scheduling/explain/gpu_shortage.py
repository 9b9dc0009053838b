"""Words for what GPUs lack for replicas that need a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tarragon.base.gpu_constraints import UNCONSTRAINED, GpuConstraints
from tarragon.base.quantity import format_bytes, format_decimal
from tarragon.base.resources import GPU_MEMORY_LABEL, WHOLE_GPU
from tarragon.job.places import describe_place, vgpu_place
from tarragon.scheduling.api.decision import WaitCause
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.state.gpus_left import FREE, GpusLeft
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger

MAX_NODES_TO_NAME_BEST = 20
"""On more nodes, messages leave out which GPU has most left: that may change with every pod."""


def gpu_shortage(demand: Demand, ledger: NodeLedger) -> str:
    """Say why the GPUs have no room for the demand's minimum size now; empty if they have."""
    request = ledger.requests.of(demand)
    share, gpus = demand.share, ledger.gpus_left(request)
    if share is None or gpus is None or not demand.minimum:
        return ""
    room = gpus.room(share if share.constraints == UNCONSTRAINED else replace(share, constraints=UNCONSTRAINED))
    permitted = ledger.permitted_gpu_room(request) if room else None
    if (room if permitted is None else permitted) >= demand.minimum:
        return ""
    if permitted is not None and permitted < room:
        return _barred(demand, share, permitted)
    if room:
        replicas = f"{demand.minimum} {demand.type.lower()}s"
        return f"GPUs have room for {room} of {replicas}; no other GPU has {share_text(share)} left"
    names = ledger.nodes.names if len(ledger.nodes.names) <= MAX_NODES_TO_NAME_BEST else ()
    return _nowhere_left(share, gpus, names)


def barring_text(constraints: GpuConstraints) -> str:
    """Say which constraints bar a pod from a GPU: its own, or else those of the pods there."""
    return " and ".join(constraints.names) or "kubeshare/sched_exclusion of other pods"


def _barred(demand: Demand, share: VgpuShare, permitted: int) -> str:
    barring = barring_text(share.constraints)
    if not permitted:
        return f"GPUs have {share_text(share)} left, but none that {barring} permits"
    replicas = f"{demand.minimum} {demand.type.lower()}s"
    return f"with {barring}, GPUs have room for {permitted} of {replicas}"


class LastingShortage(NamedTuple):
    """What GPUs lack even if no pod uses them."""

    text: str
    cause: str = ""
    """A `WaitCause`, if there is another remedy than larger GPUs."""


def gpu_shortage_when_empty(
    demands: Sequence[Demand], inventories: Sequence[Inventory], whose: str
) -> LastingShortage | None:
    """Say why the GPUs of these nodes could not run one of the demands if no pod used them; None if they could, or if
    there are none. The text says `whose` the GPUs are: `the cluster`.
    """
    for demand in demands:
        if demand.share is not None and demand.minimum:
            gpus = [
                GpusLeft.of(nodes.capacity, nodes.layout.vgpus).on(nodes.mask(demand.eligible_nodes))
                for nodes in inventories
                if nodes.layout.vgpus is not None
            ]
            lacking = _shortage_when_empty(demand, demand.share, GpusLeft.joined(gpus), whose) if gpus else None
            if lacking is not None:
                return lacking
    return None


def _shortage_when_empty(demand: Demand, share: VgpuShare, gpus: GpusLeft, whose: str) -> LastingShortage | None:
    room = gpus.room(share)
    if room >= demand.minimum or not len(gpus):
        return None
    if room:
        need = f"{format_decimal(share.request)} of one"
        need = need if share.memory is None else f"{need} and {format_bytes(share.memory)} of its memory"
        replicas, names = f"{demand.minimum} {demand.type.lower()}s", " and ".join(share.constraints.names)
        barring = f" with {names}" if names and gpus.room(replace(share, constraints=UNCONSTRAINED)) > room else ""
        return LastingShortage(
            f"even when empty, the GPUs of {whose} have room for {room} of {replicas}, which need {need} each{barring}"
        )
    memory, largest = format_bytes(share.memory or 0), int(gpus.total_memory.max())
    if not largest:
        text = f"a {demand.type.lower()} needs {memory} of a GPU's memory, and no node says how much its GPUs have"
        return LastingShortage(f"{text} (label {GPU_MEMORY_LABEL})", WaitCause.GPU_MEMORY_UNKNOWN)
    unknown = "" if gpus.total_memory.all() else f", as far as nodes say (label {GPU_MEMORY_LABEL})"
    return LastingShortage(
        f"no GPU of {whose} has {memory} of memory: the largest has {format_bytes(largest)}{unknown}"
    )


def share_text(share: VgpuShare) -> str:
    """Return the share in words: `0.5`, `0.5 and 8Gi of memory`."""
    memory = "" if share.memory is None else f" and {format_bytes(share.memory)} of memory"
    return f"{format_decimal(share.request)}{memory}"


def _nowhere_left(share: VgpuShare, gpus: GpusLeft, names: Sequence[str]) -> str:
    """Say what no GPU has, and how much the best one has of it. `names` are those of nodes by row; without them, it is
    not said which one that is.
    """
    part, fitting = format_decimal(share.request), gpus.with_left(share.request)
    if not len(fitting):
        lacking = "no whole GPU is left" if share.request == WHOLE_GPU else f"no GPU has {part} left"
        if not len(gpus):
            return f"{lacking}: all are in use"
        return f"{lacking} (most: {format_decimal(int(gpus.left[0]))}{_location(gpus, 0, names)})"
    best = int(fitting.memory.argmax())
    most = f"(most: {format_bytes(int(fitting.memory[best]))}{_location(fitting, best, names)})"
    if share.memory is None:
        return f"no GPU with {part} left has as large a part of its memory left {most}"
    of_which = "" if (gpus.memory < share.memory).all() else f" with {part} left"
    return f"no GPU{of_which} has {format_bytes(share.memory)} of memory left {most}"


def _location(gpus: GpusLeft, index: int, names: Sequence[str]) -> str:
    if not names:
        return ""
    number, node = int(gpus.numbers[index]), names[int(gpus.rows[index])]
    return f" on a free GPU of node {node}" if number == FREE else f" on {describe_place(vgpu_place(node, number))}"
