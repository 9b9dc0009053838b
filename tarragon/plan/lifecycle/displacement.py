"""Nodes that a gang has its places on and that do not take its pods any more: lost, cordoned, tainted, refusing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tarragon.base.times import later
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.job.status import NOWHERE, Admission, JobStatus, RestartRecord
from tarragon.kube.core import Node, Pod, PodSpec, Toleration
from tarragon.kube.meta import Key
from tarragon.plan.nodes.capacity import pod_spec
from tarragon.plan.nodes.predicates import away, refusal

LOST_SECONDS = 300.0
"""How long Kubernetes lets pods stay on a node that is not ready, where they do not say it themselves."""
SPARE_SECONDS = 60.0
"""We wait so much longer: where somebody evicts pods, it is done by then."""
SHUNNED_SECONDS = 300.0
"""A node that has not taken a pod gets none of its job's for so long, if others take them."""

Nodes = Mapping[Key, Node]

_LOST = frozenset({"", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


class Doors:
    """What nodes say to pods of each type of a job. Each node is asked once for each type."""

    def __init__(self, job: TrainingJob, nodes: Nodes, is_cleared: Callable[[str], bool]) -> None:
        self._nodes = nodes
        self._is_cleared = is_cleared
        self._specs = {group.type: pod_spec(group.template) for group in job.groups}
        self._known: dict[tuple[ReplicaType, str], str] = {}

    def why_closed(self, kind: ReplicaType, node: str) -> str:
        """Why no pod of that type can be made there now; empty when one can."""
        asked = (kind, node)
        if asked not in self._known:
            self._known[asked] = self._asked(kind, node)
        return self._known[asked]

    def stay(self, kind: ReplicaType) -> float | None:
        """Seconds that its pods stay on a node that is not ready; None for ever."""
        spec = self._specs.get(kind, PodSpec())
        seconds = [each.toleration_seconds for each in spec.tolerations if _is_of_lost_nodes(each)]
        if None in seconds:
            return None
        return max([float(each) for each in seconds if each is not None], default=LOST_SECONDS) + SPARE_SECONDS

    def _asked(self, kind: ReplicaType, node: str) -> str:
        found = self._nodes.get(Key("", node))
        if found is None:
            return f"node {node} is no more"
        if self._is_cleared(node):
            return f"node {node} is cleared for a pod that is more urgent"
        if kind not in self._specs:
            return ""
        why = refusal(self._specs[kind], found)
        return f"node {node} {away(found)}" if why and away(found) else f"node {node}: {why}" if why else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Household:
    """An admitted gang, its living pods and the nodes that there are."""

    job: TrainingJob
    status: JobStatus
    admission: Admission
    pods: Mapping[Replica, Pod]
    """Those that have neither ended nor been told to."""
    nodes: Nodes
    is_cleared: Callable[[str], bool] = lambda _: False


def is_unsettled(status: JobStatus, admission: Admission, nodes: Nodes) -> bool:
    """Whether some replica of the gang may be `homeless`: a quick look, for gangs by the thousand."""
    if status.obstacle is not None:
        return True
    found = (nodes.get(Key("", name)) for name in set(admission.nodes.values()))
    return any(node is None or away(node) for node in found)


def homeless(house: Household, now: dt.datetime) -> frozenset[Replica]:
    """Who needs another node: the one that it has is gone or given up, or would not take the pod that is to be made."""
    doors = Doors(house.job, house.nodes, house.is_cleared)
    return frozenset(
        replica
        for replica, node in house.admission.nodes.items()
        if replica not in house.status.finished and _needs_another(house, doors, (replica, node), now)
    )


def given_up_at(house: Household, now: dt.datetime) -> dt.datetime | None:
    """When the next pod will have been on a node for too long that is not ready."""
    doors = Doors(house.job, house.nodes, house.is_cleared)
    times = (
        _given_up_at(house, doors, replica, node)
        for replica, node in house.admission.nodes.items()
        if replica not in house.status.finished
    )
    return min((at for at in times if at is not None and at > now), default=None)


def shunned(status: JobStatus, now: dt.datetime) -> frozenset[str]:
    """Nodes that have not taken a pod of the job of late."""
    return frozenset(
        record.refused_by
        for record in status.restarts.values()
        if record.refused_by and record.at is not None and (now - record.at).total_seconds() < SHUNNED_SECONDS
    )


def is_refused(record: RestartRecord | None, node: str, admission: Admission) -> bool:
    """Whether its node has not taken the replica's pod since the gang was admitted. Records have whole seconds."""
    if record is None or not node or record.refused_by != node or record.at is None or admission.admitted is None:
        return False
    return record.at >= admission.admitted.replace(microsecond=0)


def closed(doors: Doors, missing: Mapping[Replica, str]) -> Iterator[tuple[Replica, str]]:
    """Of replicas that have no pod, those whose node takes none now, and why."""
    for replica, node in missing.items():
        why = doors.why_closed(replica.type, node) if node != NOWHERE else ""
        if why:
            yield replica, why


def _is_of_lost_nodes(toleration: Toleration) -> bool:
    return toleration.key in _LOST and toleration.effect in {"", "NoExecute"}


def _needs_another(house: Household, doors: Doors, place: tuple[Replica, str], now: dt.datetime) -> bool:
    replica, node = place
    if Key("", node) not in house.nodes:
        return True
    pod = house.pods.get(replica)
    if pod is not None and pod.spec.node_name in {"", node}:
        at = _given_up_at(house, doors, replica, node)
        return at is not None and at <= now
    if is_refused(house.status.restarts.get(replica), node, house.admission):
        return True
    return bool(doors.why_closed(replica.type, node))


def _given_up_at(house: Household, doors: Doors, replica: Replica, node: str) -> dt.datetime | None:
    found = house.nodes.get(Key("", node))
    if found is None or found.is_ready:
        return None
    since, stay = found.ready_since, doors.stay(replica.type)
    return None if since is None or stay is None else later(since, stay)
