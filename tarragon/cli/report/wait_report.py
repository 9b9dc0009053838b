"""Reports what a job waits for, as text and as JSON fields. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base import quantity
from tarragon.base.resources import PODS, Resources
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.output.words import count, listed
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.job.phase import Phase
from tarragon.kube.codec import timestamp
from tarragon.kube.meta import Json
from tarragon.plan.objects.settings import Settings
from tarragon.scheduling.explain.forecast import Forecast, Unknown
from tarragon.scheduling.explain.reasons import Explanation, NodeAccount
from tarragon.scheduling.explain.wait_messages import words

OURS = Settings().scheduler
DOCS = "docs/scheduling.md#why-a-job-waits"
MOST_HOLDERS = 4

Holders = Mapping[str, Sequence[tuple[str, Resources]]]
"""By node: the names of the jobs that hold resources there, and how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """The shortage of a waiting job. The gangs in it have the names of jobs as this user types them."""

    explanation: Explanation
    holders: Holders = field(default_factory=dict)
    refused: str = ""
    """Why nodes may not run it."""


def other_scheduler(job: Known) -> str:
    """Explains that a job waits for the other scheduler that its pods name; empty if it does not."""
    if job.job is None or job.status.admission is not None or job.status.phase is not Phase.CREATED:
        return ""
    groups = (group for group in job.job.groups if group.wish)
    named = {str(group.template.get("spec", {}).get("schedulerName") or "") for group in groups}
    others = sorted(named - {"", OURS})
    if not others:
        return ""
    return f"waiting for the scheduler {', '.join(others)} (schedulerName of its pods); Tarragon does not schedule them"


def called(gang: str, namespace: str) -> str:
    """Returns a gang's name as a command in that namespace accepts it, with the namespace if it is another one."""
    kind, _, key = gang.partition(" ")
    name = key.removeprefix(f"{namespace}/")
    return name if kind == FRAMEWORKS[0].kind else f"{kind.lower()}/{name}"


def shortage_lines(short: Short) -> Iterator[str]:
    """Yields the nearest nodes, the one that lacks least first, then what would help."""
    found = short.explanation
    if found.fits:
        yield "the job fits on the nodes now"
    else:
        yield from (_node_line(node, short) for node in found.nodes)
        if not found.lacking and found.nodes:
            yield "there is enough in total, but not together on the same nodes"
    yield from refused_lines(short)
    helps = list(_helps(found))
    if helps:
        yield f"the job could start {'; or '.join(helps)}"


def refused_lines(short: Short) -> Iterator[str]:
    """Yields the number of nodes that may not run it, with the reasons."""
    found = short.explanation
    if found.refusing:
        reasons = f": {short.refused}" if short.refused else ""
        verb = "does" if found.refusing == 1 else "do"
        yield f"{count(found.refusing, 'node')} {verb} not accept a {found.type.word} of it{reasons}"


def _helps(found: Explanation) -> Iterator[str]:
    if found.releasing:
        yield "when the terminating pods have ended"
    if found.gives:
        yield f"if {listed(found.gives)} released replicas above the minimum"
    if found.ends:
        yield f"when {listed(found.ends)} {'ends' if len(found.ends) == 1 else 'end'}"
    if found.smaller:
        yield f"now, if {count(found.smaller, found.type.word)} instead of {found.least} were enough"
    if found.back:
        yield f"if {'node' if len(found.back) == 1 else 'nodes'} {listed(found.back)} became available"
    if not found.ends and not found.releasing and len(found.nodes) == 1 and found.nodes[0].lacking:
        yield f"with {words(found.nodes[0].lacking, found.nodes[0].lacking)} more on node {found.nodes[0].name}"


def _node_line(node: NodeAccount, short: Short) -> str:
    found = short.explanation
    scarce = _scarce(node, found)
    room = f"has room for {node.room} of {count(found.least, found.type.word)}" if node.room else "has no room"
    holders = [
        (job_names, amounts) for job_names, amounts in short.holders.get(node.name, ()) if any(map(amounts.get, scarce))
    ]
    job_names = [
        f"{name} ({words(amounts, {each: 1 for each in scarce if amounts.get(each)})})" for name, amounts in holders
    ]
    holders_text = f"; held by {listed(job_names, MOST_HOLDERS)}" if job_names else ""
    ending_amounts = {each: amount for each, amount in node.releasing.items() if amount and each in scarce}
    ending_text = f"; terminating pods hold {words(ending_amounts, ending_amounts)}" if ending_amounts else ""
    free = ", ".join(f"{words(node.free, {each: 1}).split()[0]} of {words(node.has, {each: 1})}" for each in scarce)
    return f"node {node.name} {room}: {free} free{holders_text}{ending_text}"


def _scarce(node: NodeAccount, found: Explanation) -> Mapping[str, int]:
    """Returns the resources that the node lacks; for a node with some room, those that a replica requests."""
    return node.lacking or {name: amount for name, amount in found.each.items() if amount > 0 and name != PODS}


def starts_line(told: Forecast | Unknown, now: dt.datetime) -> str:
    """Returns the sentence about the start time, in the time zone of `now`."""
    if isinstance(told, Unknown):
        return f"its start time can't be estimated: {told.why}"
    likely = f", most likely {_clock(told.likely, now)}" if told.likely is not None else ""
    basis = f"(from {count(told.finished, 'finished job')})"
    if told.latest is None:
        return f"probably starts after {_clock(told.earliest, now)}{likely}; latest time unknown {basis}"
    return f"probably starts {_clock(told.earliest, now)} to {_clock(told.latest, now)}{likely} {basis}"


def _clock(at: dt.datetime, now: dt.datetime) -> str:
    local = at.astimezone(now.tzinfo)
    return f"{local:%H:%M}" if local.date() == now.date() else f"{local:%b %d %H:%M}"


def starts_fields(told: Forecast | Unknown) -> Json:
    if isinstance(told, Unknown):
        return {"unknown": told.why}
    marks = {"earliest": told.earliest, "likely": told.likely, "latest": told.latest}
    return {**{name: timestamp(at) for name, at in marks.items() if at is not None}, "from": told.finished}


def shortage_fields(short: Short) -> Json:
    found = short.explanation
    return {
        "fits": found.fits,
        "replica": found.type.word,
        "least": found.least,
        "each": _texts(found.each),
        "lacking": _texts(found.lacking),
        "nodes": [
            {
                "name": node.name,
                "room": node.room,
                "has": _texts(node.has),
                "free": _texts(node.free),
                "lacking": _texts(node.lacking),
                "heldBy": holders_fields(short.holders.get(node.name, ())),
            }
            for node in found.nodes
        ],
        "refusingNodes": found.refusing,
        "helps": {
            "ends": list(found.ends),
            "gives": list(found.gives),
            "smaller": found.smaller,
            "back": list(found.back),
        },
    }


def holders_fields(holders: Sequence[tuple[str, Resources]]) -> Json:
    return [{"name": who, "holds": _texts(held)} for who, held in holders]


def _texts(amounts: Resources) -> dict[str, str]:
    return {name: quantity.text(amount) for name, amount in sorted(amounts.items())}
