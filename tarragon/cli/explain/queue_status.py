"""Reports the queue status of a waiting job: its position, the resources it lacks, and when it will probably start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.base.clock import Clock
from tarragon.base.resources import GPU_MEMORY, Resources
from tarragon.cli.explain.operator_config import OperatorConfig, read_published_config
from tarragon.cli.explain.quotas import QuotaUse, is_quota_limited, quota_use_by_others
from tarragon.cli.explain.scheduler_view import JOBS, NODES, PODS, SchedulerView, build_scheduler_view
from tarragon.cli.jobview.gpus import accelerators_of_job, count_of_gpus, json_number
from tarragon.cli.jobview.jobs import ClusterJob, list_jobs
from tarragon.cli.jobview.progress import wait_of
from tarragon.cli.jobview.queueing import is_queued, job_key, never_fits, queued_jobs, wait_cause
from tarragon.cli.jobview.rows import current_size
from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.output.words import count, joined
from tarragon.cli.report.wait_report import (
    DOCS,
    MAX_HOLDERS,
    Shortage,
    holders_fields,
    job_name_of_gang,
    refusing_nodes_lines,
    shortage_fields,
    shortage_lines,
    start_estimate_fields,
    start_estimate_line,
)
from tarragon.client.errors import Forbidden
from tarragon.client.port import Selector
from tarragon.job.model import gang_name
from tarragon.kube.codec import format_time
from tarragon.kube.meta import Json
from tarragon.kube.scheduling.vgpu_requests import with_memory_parts
from tarragon.plan.nodes.feasibility import no_eligible_node_message
from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.api.decision import WaitCause
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.explain.forecast import Forecast, NoForecast, forecast
from tarragon.scheduling.explain.projected_cluster import allocation_by_node
from tarragon.scheduling.explain.reasons import explain_wait
from tarragon.scheduling.explain.wait_messages import format_resources
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.memory import Memory

MAX_AHEAD = 5
SHARES = "shares"
FORBIDDEN_TEXT = {
    NODES: "nodes (their free resources)",
    PODS: "pods in other namespaces (the resources they use)",
    JOBS: "jobs in other namespaces (the jobs ahead)",
    SHARES: "weights and quotas of namespaces (the order of the queue)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """The queue status of a job. Fields that are None or empty are unknown or do not apply."""

    job: ClusterJob
    ahead: Sequence[ClusterJob] = ()
    """The jobs ahead in the queue; the next to start comes first."""
    queued: int = 0
    """The number of jobs in the queue that this user may see."""
    shortage: Shortage | None = None
    expected_start: Forecast | NoForecast | None = None
    holdings: Sequence[QuotaUse] = ()
    """The use of the namespace's quota by other jobs, if the quota limits this one."""
    never_fits: bool = False
    """The job never fits, so its position and the resources held by others do not matter."""
    forbidden: Sequence[str] = ()
    """Keys of `FORBIDDEN_TEXT`: what this user may not list."""
    operator_config: OperatorConfig | None = None
    """The operator's scheduling configuration; None if it was not read."""

    @property
    def position_text(self) -> str:
        """The position in the queue, as the end of a sentence."""
        seen = " that you may see" if JOBS in self.forbidden else ""
        return f", at position {len(self.ahead) + 1} of {self.queued}{seen}" if self.queued else ""

    def lines(self, now: dt.datetime) -> Iterator[str]:
        """Yield the status as text, with times in the time zone of `now`."""
        if self.operator_config is not None and (
            self.expected_start is not None or not self.operator_config.assumed_because
        ):
            yield from (f"  {line}" for line in self.operator_config.lines())
        if self.ahead:
            named = [_described(job, self.job.key.namespace) for job in self.ahead[:MAX_AHEAD]]
            more = [f"{len(self.ahead) - MAX_AHEAD} more"] if len(self.ahead) > MAX_AHEAD else []
            yield f"  ahead of it: {joined([*named, *more])}"
        if self.holdings:
            named = [f"{name} ({format_resources(amounts, amounts)})" for name, amounts in self.holdings]
            yield f"  other jobs use the quota of {self.job.key.namespace}: {joined(named, MAX_HOLDERS)}"
        if self.shortage is not None:
            lines = refusing_nodes_lines(self.shortage) if self.never_fits else shortage_lines(self.shortage)
            yield from (f"  {line}" for line in lines)
        if self.expected_start is not None:
            yield f"  {start_estimate_line(self.expected_start, now)}"
        if self.forbidden:
            yield (
                "  not considered, because you may not list: "
                f"{joined([FORBIDDEN_TEXT[each] for each in self.forbidden])}"
            )
        if self.queued or self.never_fits:
            yield f"  more: {DOCS}"

    def fields(self) -> Mapping[str, Json]:
        """Return the status for JSON and YAML; empty for a job that does not wait and that no quota limits."""
        admission = self.job.status.admission
        found: dict[str, Json] = {}
        if self.holdings:
            found["quota"] = {"namespace": self.job.key.namespace, "heldBy": holders_fields(self.holdings)}
        if admission is None or not (self.queued or self.never_fits):
            return found
        wait = admission.wait
        found |= {
            "wait": {
                "code": wait.code if wait is not None else "",
                "message": wait.message if wait is not None else "",
                "since": format_time(admission.queued_at),
                **({} if self.never_fits else self._place()),
                "docs": DOCS,
            },
            "unseen": list(self.forbidden),
        }
        if self.shortage is not None:
            found["short"] = shortage_fields(self.shortage)
        if self.expected_start is not None:
            found["starts"] = start_estimate_fields(self.expected_start)
        if self.operator_config is not None:
            found["operator"] = self.operator_config.fields()
        return found

    def _place(self) -> Mapping[str, Json]:
        return {"place": len(self.ahead) + 1, "of": self.queued, "ahead": [_as_fields(job) for job in self.ahead]}


async def queue_status(reader: ClusterReader, job: ClusterJob, clock: Clock) -> QueueStatus:
    """Find out the queue status of a job. A running job has one only if a quota limits its size."""
    standing = await _queue_status(reader, job, clock)
    if never_fits(job) or not is_quota_limited(job):
        return standing
    namespace = job.key.namespace
    ways = standing.operator_config or (
        OperatorConfig() if job.is_offline else await read_published_config(reader, namespace)
    )
    try:
        jobs = await list_jobs(reader, Selector(namespace=namespace))
    except Forbidden:
        return standing
    return replace(standing, holdings=quota_use_by_others(job, jobs, ways.config.rules))


async def _queue_status(reader: ClusterReader, job: ClusterJob, clock: Clock) -> QueueStatus:
    """Find out the position and the shortage. In a cluster that is not running, only the position is known."""
    if never_fits(job):
        # The nodes do not matter to a job that exceeds its quota.
        ignores_nodes = job.is_offline or wait_cause(wait_of(job.status)) == WaitCause.LARGER_THAN_QUOTA
        if ignores_nodes:
            return QueueStatus(job=job)
        defaults = OperatorConfig()
        seen = await build_scheduler_view(reader, job.key.namespace, clock, defaults.config.rules)
        return _with_shortage(QueueStatus(job=job, never_fits=True), seen, (), defaults)
    if not is_queued(job):
        return QueueStatus(job=job)
    try:
        jobs, unseen = await list_jobs(reader, Selector()), []
    except Forbidden:
        unseen = [JOBS]
        try:
            jobs = await list_jobs(reader, Selector(namespace=job.key.namespace))
        except Forbidden:
            return QueueStatus(job=job, forbidden=unseen)
    ordered = queued_jobs(jobs)
    place = next((place for place, each in enumerate(ordered) if job_key(each) == job_key(job)), None)
    if place is None:
        return QueueStatus(job=job, forbidden=unseen)
    standing = QueueStatus(job=job, ahead=ordered[:place], queued=len(ordered), forbidden=unseen)
    if job.is_offline:
        return standing
    config = await read_published_config(reader, job.key.namespace)
    seen = await build_scheduler_view(reader, job.key.namespace, clock, config.config.rules)
    return _with_shortage(replace(standing, operator_config=config), seen, ordered, config)


def _with_shortage(
    standing: QueueStatus, seen: SchedulerView, queued: Sequence[ClusterJob], config: OperatorConfig
) -> QueueStatus:
    """Add the jobs ahead in scheduling order, the shortage and the expected start, if the snapshot has the gang."""
    standing = replace(standing, forbidden=[*seen.forbidden, *([SHARES] if config.hides_shares else [])])
    snapshot, name = seen.snapshot, _gang_of(standing.job)
    if snapshot is None or all(gang.name != name for gang in snapshot.waiting):
        return standing
    order = {each.gang.name: place for place, each in enumerate(in_queue_order(SchedulingCycle(snapshot, Memory())))}
    ahead = [job for job in queued if order.get(_gang_of(job), len(order)) < order[name]]
    ahead.sort(key=lambda job: order[_gang_of(job)])
    return replace(
        standing,
        ahead=ahead,
        shortage=_short(standing.job, seen, snapshot),
        expected_start=None if standing.never_fits else _starts(name, standing.forbidden, seen, config),
    )


def _gang_of(job: ClusterJob) -> str:
    return gang_name(job.framework.kind, job.key)


def _short(job: ClusterJob, seen: SchedulerView, snapshot: Snapshot) -> Shortage:
    """Collect the resources that the gang lacks on each node, and the gangs and pods that hold them."""
    namespace = job.key.namespace
    found = explain_wait(_gang_of(job), snapshot)
    refused = ""
    group = job.job.replica_spec(found.type) if job.job is not None else None
    if found.ineligible_nodes and group is not None:
        demands = next(gang for gang in snapshot.waiting if gang.name == _gang_of(job)).demands
        eligible = frozenset().union(*(demand.eligible_nodes for demand in demands if demand.type == found.type))
        refused = no_eligible_node_message(
            group.template, [node for node in seen.nodes if node.metadata.name not in eligible]
        )
    holders: dict[str, list[tuple[str, Resources]]] = {}
    inventory = Inventory.of(snapshot.nodes)
    for gang in snapshot.running:
        for node, held in allocation_by_node(gang, inventory).items():
            holders.setdefault(node, []).append((job_name_of_gang(gang.name, namespace), held))
    for node, others in seen.other_pods.items():
        row = inventory.row_of.get(node)
        gpu_memory = 0 if row is None else inventory.states[row].capacity.get(GPU_MEMORY, 0)
        holders.setdefault(node, []).extend((name, with_memory_parts(held, gpu_memory)) for name, held in others)
    ends = [job_name_of_gang(gang, namespace) for gang in found.gangs_to_end]
    gives = [job_name_of_gang(gang, namespace) for gang in found.gangs_to_shrink]
    return Shortage(
        explanation=replace(found, gangs_to_end=ends, gangs_to_shrink=gives), holders=holders, refusal_reasons=refused
    )


def _starts(
    name: str, unseen: Sequence[str], seen: SchedulerView, config: OperatorConfig
) -> Forecast | NoForecast | None:
    """Forecast the start. This is impossible for a user who may not see all jobs, pods and nodes."""
    if unseen:
        return NoForecast(f"you may not list {joined([FORBIDDEN_TEXT[each] for each in unseen])}")
    return (
        None if seen.snapshot is None else forecast(name, seen.snapshot, seen.outlook, POLICIES[config.config.policy])
    )


def _described(job: ClusterJob, namespace: str) -> str:
    number = sum(current_size(job).values())
    gpus = accelerators_of_job(job, current_size(job))
    sizes = [count(number, "replica"), *([count_of_gpus(gpus)] if gpus else [])]
    return f"{job_name_of_gang(_gang_of(job), namespace)} ({', '.join(sizes)})"


def _as_fields(job: ClusterJob) -> Json:
    number = sum(current_size(job).values())
    return {
        "name": job.key.name,
        "namespace": job.key.namespace,
        "job": job.name,
        "replicas": number,
        "gpus": json_number(accelerators_of_job(job, current_size(job))),
    }
