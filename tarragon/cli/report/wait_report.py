"""Reports what a job waits for, as text and as JSON fields. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base import quantity
from tarragon.base.resources import GPU_MEMORY, GPU_MEMORY_LABEL, NVIDIA_GPU, PODS, Resources
from tarragon.cli.output.words import count, joined
from tarragon.kube.codec import format_time
from tarragon.kube.meta import Json
from tarragon.scheduling.explain.forecast import Forecast, NoForecast
from tarragon.scheduling.explain.node_gpus import NodeGpus, VgpuAmount, vgpu_amounts, with_fractions
from tarragon.scheduling.explain.reasons import NodeShortage, WaitExplanation
from tarragon.scheduling.explain.wait_messages import format_resources

MAX_HOLDERS = 4
_SHORT = dt.timedelta(minutes=5)
"""Times that are nearer have seconds: jobs that last less than a minute would seem to start together."""
MAX_VGPUS = 4
"""The shared GPUs of a node that are listed; those with most left come first."""

Holders = Mapping[str, Sequence[tuple[str, Resources]]]
"""By node: the names of the jobs that hold resources there, and how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The shortage of a waiting job. The gangs in it have the names of jobs as this user types them."""

    explanation: WaitExplanation
    holders: Holders = field(default_factory=dict)
    refusal_reasons: str = ""
    """Why nodes may not run it."""


def shortage_lines(short: Shortage) -> Iterator[str]:
    """Yields the nearest nodes, the one that lacks least first, then what would help."""
    found = short.explanation
    if found.fits_now:
        yield "the job fits on the nodes now"
    else:
        for node in found.nodes:
            yield _node_line(node, short)
            yield from (f"  {line}" for line in _vgpu_lines(node, short))
        if not found.lacking and found.nodes and not any(node.barred_by for node in found.nodes):
            where = "on one GPU" if all(_lacks_gpu_part(node) for node in found.nodes) else "on the same nodes"
            yield f"there is enough in total, but not together {where}"
    yield from refusing_nodes_lines(short)
    helps = list(_helps(found))
    if helps:
        yield f"the job could start {'; or '.join(helps)}"


def quota_line(namespace: str, holders: Sequence[tuple[str, Resources]]) -> str:
    named = [f"{name} ({format_resources(amounts, amounts)})" for name, amounts in holders]
    return f"other jobs use the quota of {namespace}: {joined(named, MAX_HOLDERS)}"


def refusing_nodes_lines(short: Shortage) -> Iterator[str]:
    """Yields the number of nodes that may not run it, with the reasons."""
    found = short.explanation
    if found.ineligible_nodes:
        reasons = f": {short.refusal_reasons}" if short.refusal_reasons else ""
        verb = "does" if found.ineligible_nodes == 1 else "do"
        yield f"{count(found.ineligible_nodes, 'node')} {verb} not accept a {found.type.lower()} of it{reasons}"


def _helps(found: WaitExplanation) -> Iterator[str]:
    if found.fits_after_termination:
        yield "when the terminating pods have ended"
    if found.gangs_to_shrink:
        yield f"if {joined(found.gangs_to_shrink)} released replicas above the minimum"
    if found.gangs_to_end:
        yield f"when {joined(found.gangs_to_end)} {'ends' if len(found.gangs_to_end) == 1 else 'end'}"
    if found.fitting_size:
        yield f"now, if {count(found.fitting_size, found.type.lower())} instead of {found.minimum} were enough"
    if found.nodes_to_return:
        yield (
            f"if {'node' if len(found.nodes_to_return) == 1 else 'nodes'} "
            f"{joined(found.nodes_to_return)} became available"
        )
    if not found.gangs_to_end and not found.fits_after_termination and len(found.nodes) == 1 and found.nodes[0].lacking:
        (node,) = found.nodes
        where = f"one GPU of node {node.name}" if _lacks_gpu_part(node) else f"node {node.name}"
        yield f"with {format_resources(node.lacking, node.lacking)} more on {where}"


def _node_line(node: NodeShortage, short: Shortage) -> str:
    found = short.explanation
    scarce = _scarce(node, found)
    room = f"has room for {node.room} of {count(found.minimum, found.type.lower())}" if node.room else "has no room"
    holders = [
        (job_names, amounts) for job_names, amounts in short.holders.get(node.name, ()) if any(map(amounts.get, scarce))
    ]
    job_names = [
        f"{name} ({format_resources(amounts, {each: 1 for each in scarce if amounts.get(each)})})"
        for name, amounts in holders
    ]
    holders_text = f"; held by {joined(job_names, MAX_HOLDERS)}" if job_names else ""
    ending_amounts = {each: amount for each, amount in node.releasing.items() if amount and each in scarce}
    ending_text = (
        f"; terminating pods hold {format_resources(ending_amounts, ending_amounts)}" if ending_amounts else ""
    )
    free = ", ".join(
        f"{format_resources(node.free, {each: 1}).split()[0]} of {format_resources(node.capacity, {each: 1})}"
        for each in scarce
    )
    if GPU_MEMORY in node.lacking and node.gpus is not None and not node.gpus.memory:
        return f"node {node.name} {room}: it does not say how much memory its GPUs have (label {GPU_MEMORY_LABEL})"
    where = " on one GPU" if GPU_MEMORY in node.lacking else ""
    barred = f", but no GPU that {node.barred_by} permits" if node.barred_by else ""
    return f"node {node.name} {room}: {free} free{where}{barred}{holders_text}{ending_text}"


def _lacks_gpu_part(node: NodeShortage) -> bool:
    """Whether the node lacks a part of a GPU, though parts of several may be left."""
    return bool(node.lacking.get(NVIDIA_GPU, 0) % 1000 or GPU_MEMORY in node.lacking)


def _vgpu_lines(node: NodeShortage, short: Shortage) -> Iterator[str]:
    """Yield what is left of each GPU that pods share on a node, and who shares it, if that matters."""
    if node.gpus is None or _scarce(node, short.explanation).keys().isdisjoint({NVIDIA_GPU, GPU_MEMORY}):
        return
    holders, shared = _vgpu_holders(short.holders.get(node.name, ())), node.gpus.shared
    ordered = sorted(shared, key=lambda number: (-shared[number].share, number))
    for number in ordered[:MAX_VGPUS]:
        named = [f"{name} ({_vgpu_text(amount, node.gpus)})" for name, amount in holders.get(number, ())]
        held_by = f"; held by {joined(named, MAX_HOLDERS)}" if named else ""
        left = shared[number]
        memory = f" and {quantity.format_bytes(left.memory)} of its memory" if node.gpus.memory else ""
        text = f"{quantity.format_decimal(left.share)}{memory} left" if left.share else "nothing left"
        yield f"vGPU {number}: {text}{held_by}"
    if len(ordered) > MAX_VGPUS:
        yield f"{count(len(ordered) - MAX_VGPUS, 'other vGPU')} with less left"


def _vgpu_holders(holders: Sequence[tuple[str, Resources]]) -> Mapping[int, Sequence[tuple[str, VgpuAmount]]]:
    """Return who holds how much of each vGPU of a node."""
    found: dict[int, list[tuple[str, VgpuAmount]]] = {}
    for name, amounts in holders:
        for number, amount in vgpu_amounts(amounts).items():
            found.setdefault(number, []).append((name, amount))
    return found


def _vgpu_text(amount: VgpuAmount, gpus: NodeGpus) -> str:
    """Format a part of a GPU: `0.5, 2.97Gi`; without its memory if the node does not say how much it has."""
    share = quantity.format_decimal(amount.share)
    return f"{share}, {quantity.format_bytes(amount.memory)}" if gpus.memory else share


def _scarce(node: NodeShortage, found: WaitExplanation) -> Mapping[str, int]:
    """Returns the resources that the node lacks; for a node with some room, those that a replica requests, and for one
    whose GPUs it may not share, these.
    """
    if node.barred_by:
        return {NVIDIA_GPU: found.resources[NVIDIA_GPU]}
    return node.lacking or {name: amount for name, amount in found.resources.items() if amount > 0 and name != PODS}


def start_estimate_line(estimate: Forecast | NoForecast, now: dt.datetime) -> str:
    """Returns the sentence about the start time, in the time zone of `now`."""
    if isinstance(estimate, NoForecast):
        return f"its start time can't be estimated: {estimate.reason}"
    likely = f", most likely {_clock(estimate.likely, now)}" if estimate.likely is not None else ""
    basis = f"(estimated from {count(estimate.sample_size, 'finished job')})"
    if estimate.latest is None:
        return f"probably starts after {_clock(estimate.earliest, now)}{likely}, perhaps much later {basis}"
    return f"probably starts {_clock(estimate.earliest, now)} to {_clock(estimate.latest, now)}{likely} {basis}"


def _clock(at: dt.datetime, now: dt.datetime) -> str:
    local = at.astimezone(now.tzinfo)
    if dt.timedelta() <= at - now < _SHORT:
        return f"{local:%H:%M:%S}"
    return f"{local:%H:%M}" if local.date() == now.date() else f"{local:%b %d %H:%M}"


def start_estimate_fields(estimate: Forecast | NoForecast) -> Json:
    if isinstance(estimate, NoForecast):
        return {"unknown": estimate.reason}
    marks = {"earliest": estimate.earliest, "likely": estimate.likely, "latest": estimate.latest}
    return {**{name: format_time(at) for name, at in marks.items() if at is not None}, "from": estimate.sample_size}


def shortage_fields(short: Shortage) -> Json:
    found = short.explanation
    return {
        "fits": found.fits_now,
        "replica": found.type.lower(),
        "least": found.minimum,
        "each": _texts(found.resources),
        "lacking": _texts(found.lacking),
        "nodes": [
            {
                "name": node.name,
                "room": node.room,
                "has": _texts(node.capacity),
                "free": _texts(node.free),
                "lacking": _texts(node.lacking),
                **({"barredBy": node.barred_by} if node.barred_by else {}),
                "heldBy": holders_fields(short.holders.get(node.name, ())),
                **({} if node.gpus is None else {"vgpus": _vgpu_fields(node.gpus, short.holders.get(node.name, ()))}),
            }
            for node in found.nodes
        ],
        "refusingNodes": found.ineligible_nodes,
        "helps": {
            "ends": list(found.gangs_to_end),
            "gives": list(found.gangs_to_shrink),
            "smaller": found.fitting_size,
            "back": list(found.nodes_to_return),
        },
    }


def holders_fields(holders: Sequence[tuple[str, Resources]]) -> Json:
    return [{"name": who, "holds": _texts(with_fractions(held))} for who, held in holders]


def _vgpu_fields(gpus: NodeGpus, holders: Sequence[tuple[str, Resources]]) -> Json:
    by_number = _vgpu_holders(holders)
    return [
        {
            "number": number,
            "left": _vgpu_amount_fields(left),
            "heldBy": [
                {"name": name, "holds": _vgpu_amount_fields(amount)} for name, amount in by_number.get(number, ())
            ],
        }
        for number, left in gpus.shared.items()
    ]


def _vgpu_amount_fields(amount: VgpuAmount) -> Json:
    return _texts({NVIDIA_GPU: amount.share, GPU_MEMORY: amount.memory})


def _texts(amounts: Resources) -> dict[str, str]:
    # A part of a GPU's memory need not be a whole number of bytes.
    found = {GPU_MEMORY_LABEL if name == GPU_MEMORY else name: amount for name, amount in sorted(amounts.items())}
    if GPU_MEMORY in amounts:
        found[GPU_MEMORY_LABEL] = amounts[GPU_MEMORY] // 1000 * 1000
    return {name: quantity.format_milli(amount) for name, amount in found.items()}
