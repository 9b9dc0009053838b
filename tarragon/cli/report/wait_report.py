"""What a job waits for, in lines for people and in fields for programs. Pure."""

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
"""By node: who holds how much there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """What is short where. The names of gangs in it are those of jobs as this user calls them."""

    explanation: Explanation
    holders: Holders = field(default_factory=dict)
    refused: str = ""
    """What the nodes say that may not run it."""


def other_scheduler(job: Known) -> str:
    """Whom a job waits for that names a scheduler of its own; empty where none of them has to act."""
    if job.job is None or job.status.admission is not None or job.status.phase is not Phase.CREATED:
        return ""
    groups = (group for group in job.job.groups if group.wish)
    named = {str(group.template.get("spec", {}).get("schedulerName") or "") for group in groups}
    others = sorted(named - {"", OURS})
    if not others:
        return ""
    return f"it waits for the scheduler {', '.join(others)}, which its pods name: Tarragon places none of them"


def called(gang: str, namespace: str) -> str:
    """As a command in that namespace takes it; a job of another namespace with its own."""
    kind, _, key = gang.partition(" ")
    name = key.removeprefix(f"{namespace}/")
    return name if kind == FRAMEWORKS[0].kind else f"{kind.lower()}/{name}"


def shortage_lines(short: Short) -> Iterator[str]:
    """Where there is least to do first; then what would help."""
    found = short.explanation
    if found.fits:
        yield "the nodes have room for it now"
    else:
        yield from (_node_line(node, short) for node in found.nodes)
        if not found.lacking and found.nodes:
            yield "in sum there is enough, but on no nodes that have enough of it together"
    yield from refused_lines(short)
    helps = list(_helps(found))
    if helps:
        yield f"it could start {'; or '.join(helps)}"


def refused_lines(short: Short) -> Iterator[str]:
    """The nodes that may not run it, and what they say to that."""
    found = short.explanation
    if found.refusing:
        why = f": {short.refused}" if short.refused else ""
        verb = "does" if found.refusing == 1 else "do"
        yield f"{count(found.refusing, 'node')} {verb} not take a {found.type.word} of it{why}"


def _helps(found: Explanation) -> Iterator[str]:
    if found.releasing:
        yield "when the pods have ended that were told to"
    if found.gives:
        yield f"if {listed(found.gives)} gave back replicas above the minimum"
    if found.ends:
        yield f"when {listed(found.ends)} {'ends' if len(found.ends) == 1 else 'end'}"
    if found.smaller:
        yield f"now, if {count(found.smaller, found.type.word)} of {found.least} were enough for it"
    if found.back:
        yield f"if {'node' if len(found.back) == 1 else 'nodes'} {listed(found.back)} took pods again"
    if not found.ends and not found.releasing and len(found.nodes) == 1 and found.nodes[0].lacking:
        yield f"with {words(found.nodes[0].lacking, found.nodes[0].lacking)} more on node {found.nodes[0].name}"


def _node_line(node: NodeAccount, short: Short) -> str:
    found = short.explanation
    named = _scarce(node, found)
    room = f"takes {node.room} of {count(found.least, found.type.word)}" if node.room else "takes none"
    held = [(who, amounts) for who, amounts in short.holders.get(node.name, ()) if any(map(amounts.get, named))]
    who = [f"{name} ({words(amounts, {each: 1 for each in named if amounts.get(each)})})" for name, amounts in held]
    told = f"; held by {listed(who, MOST_HOLDERS)}" if who else ""
    going = {each: amount for each, amount in node.releasing.items() if amount and each in named}
    ending = f"; ending pods hold {words(going, going)}" if going else ""
    free = ", ".join(f"{words(node.free, {each: 1}).split()[0]} of {words(node.has, {each: 1})}" for each in named)
    return f"node {node.name} {room}: {free} free{told}{ending}"


def _scarce(node: NodeAccount, found: Explanation) -> Mapping[str, int]:
    """What it lacks; of a node that takes some, what is asked for, without the pods themselves."""
    return node.lacking or {name: amount for name, amount in found.each.items() if amount > 0 and name != PODS}


def starts_line(told: Forecast | Unknown, now: dt.datetime) -> str:
    """In the time zone of `now`."""
    if isinstance(told, Unknown):
        return f"when it starts can't be told: {told.why}"
    likely = f", most likely {_clock(told.likely, now)}" if told.likely is not None else ""
    base = f"(from {count(told.finished, 'finished job')})"
    if told.latest is None:
        return f"probably starts after {_clock(told.earliest, now)}{likely}; how late can't be told {base}"
    return f"probably starts {_clock(told.earliest, now)} to {_clock(told.latest, now)}{likely} {base}"


def _clock(at: dt.datetime, now: dt.datetime) -> str:
    there = at.astimezone(now.tzinfo)
    return f"{there:%H:%M}" if there.date() == now.date() else f"{there:%b %d %H:%M}"


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
