"""Finds the replicas of an admitted gang that need another node: theirs is lost, cordoned, tainted or rejects pods."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tarragon.base.time_arithmetic import add_seconds
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.job.places import describe_place, node_of
from tarragon.job.status import UNASSIGNED, Admission, JobStatus, RestartRecord
from tarragon.kube.core import Node, Pod, PodSpec, Toleration
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GpuShare, share_of_template
from tarragon.plan.nodes.feasibility import infeasible_reason, unavailable_reason
from tarragon.plan.nodes.replica_requests import is_right_place, pod_spec

DEFAULT_TOLERATION_SECONDS = 300.0
"""Kubernetes' default toleration for a node that is not ready, for pods that do not set tolerationSeconds."""
TOLERATION_MARGIN_SECONDS = 60.0
"""Added to the toleration: where Kubernetes evicts pods of lost nodes, it has done so by then."""
AVOID_NODE_SECONDS = 300.0
"""How long a job avoids a node that has rejected one of its pods, if other nodes are feasible."""

NodesByKey = Mapping[Key, Node]

_LOST = frozenset({"", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


class NodeFilter:
    """Checks whether places accept new pods of a job's replicas. What nodes say is cached by type.

    The template of a running job may have been edited so that its replicas need another part of a GPU.
    """

    def __init__(
        self,
        job: TrainingJob,
        nodes: NodesByKey,
        is_cleared: Callable[[str], bool],
        gpu_shortage: Callable[[Replica, str, GpuShare], str],
    ) -> None:
        self._nodes = nodes
        self._is_cleared = is_cleared
        self._gpu_shortage = gpu_shortage
        self._specs = {group.type: pod_spec(group.template) for group in job.replica_specs}
        self._shares = {group.type: share_of_template(group.template) for group in job.replica_specs}
        self._reasons: dict[tuple[ReplicaType, str], str] = {}

    def rejection_reason(self, replica: Replica, place: str) -> str:
        """Return why the replica's next pod can't start at the place now; empty if it can."""
        key = (replica.type, node_of(place))
        if key not in self._reasons:
            self._reasons[key] = self._find_reason(*key)
        return self._reasons[key] or self._find_gpu_reason(replica, place)

    def toleration_seconds(self, kind: ReplicaType) -> float | None:
        """Return how many seconds pods of the type stay on a node that is not ready; None means forever."""
        spec = self._specs.get(kind, PodSpec())
        seconds = [each.toleration_seconds for each in spec.tolerations if _tolerates_lost_nodes(each)]
        if None in seconds:
            return None
        return (
            max([float(each) for each in seconds if each is not None], default=DEFAULT_TOLERATION_SECONDS)
            + TOLERATION_MARGIN_SECONDS
        )

    def _find_reason(self, kind: ReplicaType, node: str) -> str:
        found = self._nodes.get(Key("", node))
        if found is None:
            return f"node {node} no longer exists"
        if self._is_cleared(node):
            return f"kube-scheduler preempts pods on node {node} for a more urgent pod"
        if kind not in self._specs:
            return ""
        reason = infeasible_reason(self._specs[kind], found)
        return (
            f"node {node} {unavailable_reason(found)}"
            if reason and unavailable_reason(found)
            else f"node {node}: {reason}"
            if reason
            else ""
        )

    def _find_gpu_reason(self, replica: Replica, place: str) -> str:
        if replica.type not in self._shares:
            return ""
        share = self._shares[replica.type]
        if not is_right_place(share, place):
            requested = "no part of a GPU any more" if share is None else "a part of a GPU now"
            return f"it was assigned to {describe_place(place)}, but requests {requested}"
        return "" if share is None else self._gpu_shortage(replica, place, share)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedGang:
    """An admitted gang with its live pods, and all nodes."""

    job: TrainingJob
    status: JobStatus
    admission: Admission
    pods: Mapping[Replica, Pod]
    """Pods that have not finished and are not being deleted."""
    nodes: NodesByKey
    is_being_preempted: Callable[[str], bool] = lambda _: False
    gpu_shortage: Callable[[Replica, str, GpuShare], str] = lambda _, __, ___: ""

    @property
    def node_filter(self) -> NodeFilter:
        return NodeFilter(self.job, self.nodes, self.is_being_preempted, self.gpu_shortage)


def may_have_displaced_replicas(status: JobStatus, admission: Admission, nodes: NodesByKey) -> bool:
    """Whether some replica of the gang may be displaced: a fast check that is run for thousands of gangs."""
    if status.obstacle is not None:
        return True
    assigned = (nodes.get(Key("", name)) for name in set(map(node_of, admission.nodes.values())))
    return any(node is None or unavailable_reason(node) for node in assigned)


def displaced_replicas(gang: AdmittedGang, now: dt.datetime) -> frozenset[Replica]:
    """Return the displaced replicas: their node is gone or not ready for too long, or would reject their next pod."""
    node_filter = gang.node_filter
    return frozenset(
        replica
        for replica, place in gang.admission.nodes.items()
        if replica not in gang.status.succeeded_replicas and _is_displaced(gang, node_filter, (replica, place), now)
    )


def next_displacement_at(gang: AdmittedGang, now: dt.datetime) -> dt.datetime | None:
    """Return when the next pod will have exceeded its toleration for a node that is not ready; None if none will."""
    node_filter = gang.node_filter
    times = (
        _toleration_ends_at(gang, node_filter, replica, node_of(place))
        for replica, place in gang.admission.nodes.items()
        if replica not in gang.status.succeeded_replicas
    )
    return min((at for at in times if at is not None and at > now), default=None)


def avoided_nodes(status: JobStatus, now: dt.datetime) -> frozenset[str]:
    """Return the nodes that have rejected a pod of the job within the last AVOID_NODE_SECONDS."""
    return frozenset(
        record.rejected_by_node
        for record in status.restarts.values()
        if record.rejected_by_node
        and record.ended_at is not None
        and (now - record.ended_at).total_seconds() < AVOID_NODE_SECONDS
    )


def was_rejected_by_node(record: RestartRecord | None, place: str, admission: Admission) -> bool:
    """Whether the place's node has rejected the replica's pod since the gang was admitted. Records have whole
    seconds.
    """
    node = node_of(place)
    if (
        record is None
        or not node
        or record.rejected_by_node != node
        or record.ended_at is None
        or admission.admitted_at is None
    ):
        return False
    return record.ended_at >= admission.admitted_at.replace(microsecond=0)


def replicas_on_rejecting_nodes(
    node_filter: NodeFilter, missing: Mapping[Replica, str]
) -> Iterator[tuple[Replica, str]]:
    """Yield the replicas without a pod whose node accepts none now, with the reason."""
    for replica, place in missing.items():
        reason = node_filter.rejection_reason(replica, place) if place != UNASSIGNED else ""
        if reason:
            yield replica, reason


def _tolerates_lost_nodes(toleration: Toleration) -> bool:
    return toleration.key in _LOST and toleration.effect in {"", "NoExecute"}


def _is_displaced(
    gang: AdmittedGang, node_filter: NodeFilter, assignment: tuple[Replica, str], now: dt.datetime
) -> bool:
    replica, place = assignment
    node = node_of(place)
    if Key("", node) not in gang.nodes:
        return True
    pod = gang.pods.get(replica)
    if pod is not None and pod.spec.node_name in {"", node}:
        at = _toleration_ends_at(gang, node_filter, replica, node)
        return at is not None and at <= now
    if was_rejected_by_node(gang.status.restarts.get(replica), place, gang.admission):
        return True
    return bool(node_filter.rejection_reason(replica, place))


def _toleration_ends_at(gang: AdmittedGang, node_filter: NodeFilter, replica: Replica, node: str) -> dt.datetime | None:
    node_object = gang.nodes.get(Key("", node))
    if node_object is None or node_object.is_ready:
        return None
    since, stay = node_object.ready_since, node_filter.toleration_seconds(replica.type)
    return None if since is None or stay is None else add_seconds(since, stay)
