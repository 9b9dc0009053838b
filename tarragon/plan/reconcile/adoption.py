"""Rebuilds the admission of a job from its live pods: for an adopted job, or one whose admission record was lost.

Live pods stay on their nodes. Missing replicas get the node UNASSIGNED: the next scheduling cycle finds them a node, as
it does for replicas whose node is gone, so that no capacity is promised that is not free.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tarragon.frameworks.plugin import Dialect, GangSize
from tarragon.job.conditions import SUSPENDED
from tarragon.job.model import Replica, TrainingJob
from tarragon.job.phase import JobSignal
from tarragon.job.status import UNASSIGNED, Admission, JobStatus
from tarragon.kube.core import Pod
from tarragon.plan.objects.placement import assigned_place
from tarragon.plan.status.patch import status_patch
from tarragon.plan.view.actions import Actions
from tarragon.plan.view.job_view import JobView, is_controlled_by


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePods:
    """The pods that exist of a gang whose admission is not on record."""

    live_nodes: Mapping[Replica, str]
    """The node of each pod that runs or will run; UNASSIGNED while kube-scheduler has not bound it."""
    succeeded_nodes: Mapping[Replica, str]
    """The node of each pod that has succeeded."""

    @property
    def unbound(self) -> frozenset[Replica]:
        """Replicas whose pod exists and waits for kube-scheduler to bind it."""
        return frozenset(replica for replica, node in self.live_nodes.items() if node == UNASSIGNED)


def find_live_pods(dialect: Dialect, job: TrainingJob, status: JobStatus, pods: Iterable[Pod]) -> LivePods:
    """Collect the job's live and succeeded pods. Pods from before a suspension are ignored: they are to be deleted.

    `pods` may hold any pods; those that the job does not control are ignored.
    """
    living: dict[Replica, str] = {}
    succeeded: dict[Replica, str] = {}
    owner = job.owner_identity
    for pod in pods:
        replica = dialect.names.replica_of(job, pod.metadata.name)
        if replica is None or not is_controlled_by(pod, owner) or _predates_suspension(pod, status):
            continue
        if pod.status.phase == "Succeeded":
            succeeded[replica] = assigned_place(pod)
        elif not pod.metadata.is_being_deleted and not pod.is_finished:
            living[replica] = assigned_place(pod)
    return LivePods(
        live_nodes=living,
        succeeded_nodes={replica: node for replica, node in succeeded.items() if replica not in living},
    )


def rebuild_admission(found: LivePods, minimum: GangSize, requested: GangSize, now: dt.datetime) -> Admission | None:
    """Return an admission that keeps the live pods; None when there are none: then the job is queued like a new one.

    A replica type that may run with fewer replicas than requested gets the size up to its highest existing index; it
    grows later if there is capacity.
    """
    if not found.live_nodes:
        return None
    node_of_replica = {**found.succeeded_nodes, **found.live_nodes}
    size = {
        kind: max(
            minimum.get(kind, 0),
            min(count, max((replica.index + 1 for replica in node_of_replica if replica.type == kind), default=0)),
        )
        for kind, count in requested.items()
    }
    return Admission(queued_at=now, admitted_at=now, size=size, nodes=_assigned_nodes(size, node_of_replica))


def with_bound_nodes(admission: Admission, found: LivePods) -> Admission:
    """Return the admission with the nodes that kube-scheduler has meanwhile assigned."""
    if UNASSIGNED not in admission.nodes.values():
        return admission
    nodes = {replica: node or found.live_nodes.get(replica, UNASSIGNED) for replica, node in admission.nodes.items()}
    return replace(admission, nodes=nodes) if nodes != admission.nodes else admission


def has_unassigned_replicas(admission: Admission | None) -> bool:
    """Whether some replica of an admitted gang has no node yet."""
    return admission is not None and UNASSIGNED in admission.nodes.values()


def await_admission(view: JobView) -> Actions | None:
    """Write only the status while live pods exist but no admission is on record.

    No pods are created or deleted until the scheduler has rebuilt the admission. A job that has already succeeded or
    failed is left to the usual rules: None.
    """
    if not view.needs_admission or view.recorded_status.admission is not None:
        return None
    if not find_live_pods(view.dialect, view.job, view.recorded_status, view.own_pods).live_nodes:
        return None
    if view.framework.evaluate(view.framework_view).signal in {JobSignal.SUCCEEDED, JobSignal.FAILED}:
        return None
    return Actions(status_patch=status_patch(view, view.recorded_status))


def _predates_suspension(pod: Pod, status: JobStatus) -> bool:
    suspension, created = status.condition(SUSPENDED), pod.metadata.creation_timestamp
    return suspension is not None and created is not None and created < suspension.last_transition_time


def _assigned_nodes(size: GangSize, node_of_replica: Mapping[Replica, str]) -> Mapping[Replica, str]:
    gang = (Replica(kind, index) for kind, count in size.items() for index in range(count))
    return {replica: node_of_replica.get(replica, UNASSIGNED) for replica in gang}
