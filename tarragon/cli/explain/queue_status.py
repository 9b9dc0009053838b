"""How a job that waits stands beside the others: its place, what is short where, and when it will probably start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.base.clock import Clock
from tarragon.base.resources import Resources
from tarragon.cli.explain.operator_config import Published, ways_of
from tarragon.cli.explain.quotas import Holding, holdings, is_held_back
from tarragon.cli.explain.scheduler_view import JOBS, NODES, PODS, Sight, sight
from tarragon.cli.jobview.gpus import of_job
from tarragon.cli.jobview.jobs import Known, all_jobs
from tarragon.cli.jobview.queueing import is_over_its_quota, key, never_fits, queue, waits
from tarragon.cli.jobview.rows import size
from tarragon.cli.jobview.target import Looker
from tarragon.cli.output.words import count, listed
from tarragon.cli.report.wait_report import (
    DOCS,
    MOST_HOLDERS,
    Short,
    called,
    holders_fields,
    refused_lines,
    shortage_fields,
    shortage_lines,
    starts_fields,
    starts_line,
)
from tarragon.client.errors import Forbidden
from tarragon.client.port import Selection
from tarragon.kube.codec import timestamp
from tarragon.kube.meta import Json
from tarragon.plan.nodes.capacity import why_nowhere
from tarragon.scheduling.actions.order import in_order
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import Round
from tarragon.scheduling.explain.forecast import Forecast, Unknown, forecast, held_by
from tarragon.scheduling.explain.reasons import explained
from tarragon.scheduling.explain.wait_messages import words
from tarragon.scheduling.policies import POLICIES

MOST_AHEAD = 5
SHARES = "shares"
UNSEEN = {
    NODES: "the nodes (what is short where)",
    PODS: "the pods of other namespaces (who holds what)",
    JOBS: "the jobs of other namespaces (who is ahead)",
    SHARES: "the weights and quotas of namespaces (who goes first)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is None, or empty, is not known, or there is nothing to say of it."""

    job: Known
    ahead: Sequence[Known] = ()
    """In their order; the next to start comes first."""
    queued: int = 0
    """Jobs in the queue, as far as they can be seen."""
    short: Short | None = None
    starts: Forecast | Unknown | None = None
    holdings: Sequence[Holding] = ()
    """What others hold of the quota that holds it back."""
    never: bool = False
    """It never fits: of its turn, and of what others hold, there is nothing to say."""
    unseen: Sequence[str] = ()
    """What could not be looked at: words of `UNSEEN`."""
    ways: Published | None = None
    """By what the operator decides; nothing is told of it where nobody asked."""

    @property
    def place(self) -> str:
        """In words that follow those of how long it has been in the queue."""
        seen = " that you may see" if JOBS in self.unseen else ""
        return f", at place {len(self.ahead) + 1} of {self.queued}{seen}" if self.queued else ""

    def lines(self, now: dt.datetime) -> Iterator[str]:
        """Times are told in the zone of `now`."""
        if self.ways is not None and (self.starts is not None or not self.ways.assumed):
            yield from (f"  {line}" for line in self.ways.lines())
        if self.ahead:
            named = [_in_words(job, self.job.key.namespace) for job in self.ahead[:MOST_AHEAD]]
            more = [f"{len(self.ahead) - MOST_AHEAD} more"] if len(self.ahead) > MOST_AHEAD else []
            yield f"  ahead of it: {listed([*named, *more])}"
        if self.holdings:
            named = [f"{name} ({words(amounts, amounts)})" for name, amounts in self.holdings]
            yield f"  of the quota of {self.job.key.namespace} others hold: {listed(named, MOST_HOLDERS)}"
        if self.short is not None:
            told = refused_lines(self.short) if self.never else shortage_lines(self.short)
            yield from (f"  {line}" for line in told)
        if self.starts is not None:
            yield f"  {starts_line(self.starts, now)}"
        if self.unseen:
            yield f"  not looked at, as you may not: {listed([UNSEEN[each] for each in self.unseen])}"
        if self.queued or self.never:
            yield f"  more: {DOCS}"

    def fields(self) -> Mapping[str, Json]:
        """For programs; those of a job that does not wait, and that no quota keeps small, are none."""
        admission = self.job.status.admission
        found: dict[str, Json] = {}
        if self.holdings:
            found["quota"] = {"namespace": self.job.key.namespace, "heldBy": holders_fields(self.holdings)}
        if admission is None or not (self.queued or self.never):
            return found
        wait = admission.wait
        found |= {
            "wait": {
                "code": wait.code if wait is not None else "",
                "message": wait.message if wait is not None else "",
                "since": timestamp(admission.queued),
                **({} if self.never else self._place()),
                "docs": DOCS,
            },
            "unseen": list(self.unseen),
        }
        if self.short is not None:
            found["short"] = shortage_fields(self.short)
        if self.starts is not None:
            found["starts"] = starts_fields(self.starts)
        if self.ways is not None:
            found["operator"] = self.ways.fields()
        return found

    def _place(self) -> Mapping[str, Json]:
        return {"place": len(self.ahead) + 1, "of": self.queued, "ahead": [_as_fields(job) for job in self.ahead]}


async def standing_of(looker: Looker, job: Known, clock: Clock) -> Standing:
    """Of one that runs there is something to tell where a quota keeps it small."""
    standing = await _in_queue(looker, job, clock)
    if never_fits(job) or not is_held_back(job):
        return standing
    namespace = job.key.namespace
    ways = standing.ways or (Published() if job.is_stored else await ways_of(looker, namespace))
    try:
        jobs = await all_jobs(looker, Selection(namespace=namespace))
    except Forbidden:
        return standing
    return replace(standing, holdings=holdings(job, jobs, ways.ways.rules))


async def _in_queue(looker: Looker, job: Known, clock: Clock) -> Standing:
    """Of a cluster that does not run, its queue is all there is to tell: nobody starts."""
    if never_fits(job):
        # What the nodes have is nothing to one that its quota keeps out for good.
        has_no_use = job.is_stored or is_over_its_quota(job)
        if has_no_use:
            return Standing(job=job)
        nothing = Published()
        seen = await sight(looker, job.key.namespace, clock, nothing.ways.rules)
        return _seen(Standing(job=job, never=True), seen, (), nothing)
    if not waits(job):
        return Standing(job=job)
    try:
        jobs, unseen = await all_jobs(looker, Selection()), []
    except Forbidden:
        unseen = [JOBS]
        try:
            jobs = await all_jobs(looker, Selection(namespace=job.key.namespace))
        except Forbidden:
            return Standing(job=job, unseen=unseen)
    ordered = queue(jobs)
    place = next((place for place, each in enumerate(ordered) if key(each) == key(job)), None)
    if place is None:
        return Standing(job=job, unseen=unseen)
    standing = Standing(job=job, ahead=ordered[:place], queued=len(ordered), unseen=unseen)
    if job.is_stored:
        return standing
    known = await ways_of(looker, job.key.namespace)
    seen = await sight(looker, job.key.namespace, clock, known.ways.rules)
    return _seen(replace(standing, ways=known), seen, ordered, known)


def _seen(standing: Standing, seen: Sight, queued: Sequence[Known], known: Published) -> Standing:
    standing = replace(standing, unseen=[*seen.unseen, *([SHARES] if known.hides_shares else [])])
    picture, name = seen.snapshot, gang_of(standing.job)
    if picture is None or all(gang.name != name for gang in picture.waiting):
        return standing
    order = {each.gang.name: place for place, each in enumerate(in_order(Round(picture)))}
    ahead = [job for job in queued if order.get(gang_of(job), len(order)) < order[name]]
    ahead.sort(key=lambda job: order[gang_of(job)])
    return replace(
        standing,
        ahead=ahead,
        short=_short(standing.job, seen, picture),
        starts=None if standing.never else _starts(name, standing.unseen, seen, known),
    )


def gang_of(job: Known) -> str:
    """As policies call it."""
    return f"{job.framework.kind} {job.key}"


def _short(job: Known, seen: Sight, picture: Snapshot) -> Short:
    namespace = job.key.namespace
    found = explained(gang_of(job), picture)
    refused = ""
    group = job.job.group(found.type) if job.job is not None else None
    if found.refusing and group is not None:
        eligible = next(gang for gang in picture.waiting if gang.name == gang_of(job)).demands
        mine = frozenset().union(*(demand.eligible for demand in eligible if demand.type is found.type))
        refused = why_nowhere(group.template, [node for node in seen.nodes if node.metadata.name not in mine])
    holders: dict[str, list[tuple[str, Resources]]] = {}
    for gang in picture.running:
        for node, held in held_by(gang).items():
            holders.setdefault(node, []).append((called(gang.name, namespace), held))
    for node, others in seen.others.items():
        holders.setdefault(node, []).extend(others)
    ends = [called(gang, namespace) for gang in found.ends]
    gives = [called(gang, namespace) for gang in found.gives]
    return Short(explanation=replace(found, ends=ends, gives=gives), holders=holders, refused=refused)


def _starts(name: str, unseen: Sequence[str], seen: Sight, known: Published) -> Forecast | Unknown | None:
    """Whoever can't see all jobs, or all pods, can't know who ends when."""
    if unseen:
        return Unknown(f"you may not look at {listed([UNSEEN[each] for each in unseen])}")
    return None if seen.snapshot is None else forecast(name, seen.snapshot, seen.outlook, POLICIES[known.ways.policy])


def _in_words(job: Known, namespace: str) -> str:
    number = sum(size(job).values())
    gpus = of_job(job, size(job))
    sizes = [count(number, "replica"), *([count(gpus, "GPU")] if gpus else [])]
    return f"{called(gang_of(job), namespace)} ({', '.join(sizes)})"


def _as_fields(job: Known) -> Json:
    number = sum(size(job).values())
    return {
        "name": job.key.name,
        "namespace": job.key.namespace,
        "job": job.name,
        "replicas": number,
        "gpus": of_job(job, size(job)),
    }
