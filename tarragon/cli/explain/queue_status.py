"""Reports the queue status of a waiting job: its position, the resources it lacks, and when it will probably start."""

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
from tarragon.scheduling.state.memory import Memory

MOST_AHEAD = 5
SHARES = "shares"
UNSEEN = {
    NODES: "nodes (their free resources)",
    PODS: "pods in other namespaces (the resources they use)",
    JOBS: "jobs in other namespaces (the jobs ahead)",
    SHARES: "weights and quotas of namespaces (the order of the queue)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The queue status of a job. Fields that are None or empty are unknown or do not apply."""

    job: Known
    ahead: Sequence[Known] = ()
    """The jobs ahead in the queue; the next to start comes first."""
    queued: int = 0
    """The number of jobs in the queue that this user may see."""
    short: Short | None = None
    starts: Forecast | Unknown | None = None
    holdings: Sequence[Holding] = ()
    """The use of the namespace's quota by other jobs, if the quota limits this one."""
    never: bool = False
    """The job never fits, so its position and the resources held by others do not matter."""
    unseen: Sequence[str] = ()
    """Keys of `UNSEEN`: what this user may not list."""
    ways: Published | None = None
    """The operator's scheduling configuration; None if it was not read."""

    @property
    def place(self) -> str:
        """The position in the queue, as the end of a sentence."""
        seen = " that you may see" if JOBS in self.unseen else ""
        return f", at position {len(self.ahead) + 1} of {self.queued}{seen}" if self.queued else ""

    def lines(self, now: dt.datetime) -> Iterator[str]:
        """Yield the status as text, with times in the time zone of `now`."""
        if self.ways is not None and (self.starts is not None or not self.ways.assumed):
            yield from (f"  {line}" for line in self.ways.lines())
        if self.ahead:
            named = [_described(job, self.job.key.namespace) for job in self.ahead[:MOST_AHEAD]]
            more = [f"{len(self.ahead) - MOST_AHEAD} more"] if len(self.ahead) > MOST_AHEAD else []
            yield f"  ahead of it: {listed([*named, *more])}"
        if self.holdings:
            named = [f"{name} ({words(amounts, amounts)})" for name, amounts in self.holdings]
            yield f"  other jobs use the quota of {self.job.key.namespace}: {listed(named, MOST_HOLDERS)}"
        if self.short is not None:
            lines = refused_lines(self.short) if self.never else shortage_lines(self.short)
            yield from (f"  {line}" for line in lines)
        if self.starts is not None:
            yield f"  {starts_line(self.starts, now)}"
        if self.unseen:
            yield f"  not considered, because you may not list: {listed([UNSEEN[each] for each in self.unseen])}"
        if self.queued or self.never:
            yield f"  more: {DOCS}"

    def fields(self) -> Mapping[str, Json]:
        """Return the status for JSON and YAML; empty for a job that does not wait and that no quota limits."""
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
    """Find out the queue status of a job. A running job has one only if a quota limits its size."""
    standing = await _queue_status(looker, job, clock)
    if never_fits(job) or not is_held_back(job):
        return standing
    namespace = job.key.namespace
    ways = standing.ways or (Published() if job.is_stored else await ways_of(looker, namespace))
    try:
        jobs = await all_jobs(looker, Selection(namespace=namespace))
    except Forbidden:
        return standing
    return replace(standing, holdings=holdings(job, jobs, ways.ways.rules))


async def _queue_status(looker: Looker, job: Known, clock: Clock) -> Standing:
    """Find out the position and the shortage. In a cluster that is not running, only the position is known."""
    if never_fits(job):
        # The nodes do not matter to a job that exceeds its quota.
        ignores_nodes = job.is_stored or is_over_its_quota(job)
        if ignores_nodes:
            return Standing(job=job)
        defaults = Published()
        seen = await sight(looker, job.key.namespace, clock, defaults.ways.rules)
        return _with_shortage(Standing(job=job, never=True), seen, (), defaults)
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
    config = await ways_of(looker, job.key.namespace)
    seen = await sight(looker, job.key.namespace, clock, config.ways.rules)
    return _with_shortage(replace(standing, ways=config), seen, ordered, config)


def _with_shortage(standing: Standing, seen: Sight, queued: Sequence[Known], config: Published) -> Standing:
    """Add the jobs ahead in scheduling order, the shortage and the expected start, if the snapshot has the gang."""
    standing = replace(standing, unseen=[*seen.unseen, *([SHARES] if config.hides_shares else [])])
    snapshot, name = seen.snapshot, gang_of(standing.job)
    if snapshot is None or all(gang.name != name for gang in snapshot.waiting):
        return standing
    order = {each.gang.name: place for place, each in enumerate(in_order(Round(snapshot, Memory())))}
    ahead = [job for job in queued if order.get(gang_of(job), len(order)) < order[name]]
    ahead.sort(key=lambda job: order[gang_of(job)])
    return replace(
        standing,
        ahead=ahead,
        short=_short(standing.job, seen, snapshot),
        starts=None if standing.never else _starts(name, standing.unseen, seen, config),
    )


def gang_of(job: Known) -> str:
    """Return the name of the job's gang in a snapshot."""
    return f"{job.framework.kind} {job.key}"


def _short(job: Known, seen: Sight, snapshot: Snapshot) -> Short:
    """Collect the resources that the gang lacks on each node, and the gangs and pods that hold them."""
    namespace = job.key.namespace
    found = explained(gang_of(job), snapshot)
    refused = ""
    group = job.job.group(found.type) if job.job is not None else None
    if found.refusing and group is not None:
        demands = next(gang for gang in snapshot.waiting if gang.name == gang_of(job)).demands
        eligible = frozenset().union(*(demand.eligible for demand in demands if demand.type is found.type))
        refused = why_nowhere(group.template, [node for node in seen.nodes if node.metadata.name not in eligible])
    holders: dict[str, list[tuple[str, Resources]]] = {}
    for gang in snapshot.running:
        for node, held in held_by(gang).items():
            holders.setdefault(node, []).append((called(gang.name, namespace), held))
    for node, others in seen.others.items():
        holders.setdefault(node, []).extend(others)
    ends = [called(gang, namespace) for gang in found.ends]
    gives = [called(gang, namespace) for gang in found.gives]
    return Short(explanation=replace(found, ends=ends, gives=gives), holders=holders, refused=refused)


def _starts(name: str, unseen: Sequence[str], seen: Sight, config: Published) -> Forecast | Unknown | None:
    """Forecast the start. This is impossible for a user who may not see all jobs, pods and nodes."""
    if unseen:
        return Unknown(f"you may not list {listed([UNSEEN[each] for each in unseen])}")
    return None if seen.snapshot is None else forecast(name, seen.snapshot, seen.outlook, POLICIES[config.ways.policy])


def _described(job: Known, namespace: str) -> str:
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
