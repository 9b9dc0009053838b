"""What the scheduler says of a waiting job: the jobs ahead, what it lacks on each node, and when it will start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tarragon.base.resources import GPU_MEMORY, Resources
from tarragon.cli.explain.forbidden_lists import FORBIDDEN_TEXT, SHARES
from tarragon.cli.explain.operator_config import OperatorConfig
from tarragon.cli.explain.queue_status import QueueStatus, gang_of
from tarragon.cli.explain.scheduler_view import SchedulerView
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.queueing import job_name_of_gang
from tarragon.cli.output.words import joined
from tarragon.cli.report.wait_report import Shortage
from tarragon.kube.scheduling.vgpu_requests import with_memory_parts
from tarragon.plan.nodes.feasibility import no_eligible_node_message
from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.explain.forecast import Forecast, NoForecast, forecast
from tarragon.scheduling.explain.projected_cluster import allocation_by_node
from tarragon.scheduling.explain.reasons import explain_wait
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.memory import Memory


def with_outlook(
    standing: QueueStatus, seen: SchedulerView, queued: Sequence[ClusterJob], config: OperatorConfig
) -> QueueStatus:
    """Add the jobs ahead in scheduling order, the shortage and the expected start, if the snapshot has the gang."""
    standing = replace(standing, forbidden=[*seen.forbidden, *([SHARES] if config.hides_shares else [])])
    snapshot, name = seen.snapshot, gang_of(standing.job)
    if snapshot is None or all(gang.name != name for gang in snapshot.waiting):
        return standing
    order = {each.gang.name: place for place, each in enumerate(in_queue_order(SchedulingCycle(snapshot, Memory())))}
    ahead = [job for job in queued if order.get(gang_of(job), len(order)) < order[name]]
    ahead.sort(key=lambda job: order[gang_of(job)])
    return replace(
        standing,
        ahead=ahead,
        shortage=_short(standing.job, seen, snapshot),
        expected_start=None if standing.never_fits else _starts(name, standing.forbidden, seen, config),
    )


def _short(job: ClusterJob, seen: SchedulerView, snapshot: Snapshot) -> Shortage:
    """Collect the resources that the gang lacks on each node, and the gangs and pods that hold them."""
    namespace = job.key.namespace
    found = explain_wait(gang_of(job), snapshot)
    refused = ""
    group = job.job.replica_spec(found.type) if job.job is not None else None
    if found.ineligible_nodes and group is not None:
        demands = next(gang for gang in snapshot.waiting if gang.name == gang_of(job)).demands
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
