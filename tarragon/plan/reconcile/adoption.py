"""An admission made anew from the pods that live: of a job that another operator began, or whose record was lost.

What lives stays where it is. Replicas that are missing get no place here but NOWHERE: the next round finds them one, as
for those whose node is gone, so that nothing is ever promised that is not free.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tarragon.frameworks.plugin import Dialect, Size
from tarragon.job.conditions import SUSPENDED
from tarragon.job.model import Replica, TrainingJob
from tarragon.job.phase import Signal
from tarragon.job.status import NOWHERE, Admission, JobStatus
from tarragon.kube.core import Pod
from tarragon.plan.objects.placement import node_of
from tarragon.plan.status.patch import status_patch
from tarragon.plan.view.actions import Step
from tarragon.plan.view.job_view import Scene, is_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What there is of a gang."""

    living: Mapping[Replica, str]
    """The node of each pod that runs or is to run; NOWHERE while kube-scheduler has not bound it."""
    done: Mapping[Replica, str]
    """The node of each pod that has ended well."""

    @property
    def unbound(self) -> frozenset[Replica]:
        """They have a pod, and somebody else is to find its place."""
        return frozenset(replica for replica, node in self.living.items() if node == NOWHERE)


def remains(dialect: Dialect, job: TrainingJob, status: JobStatus, pods: Iterable[Pod]) -> Remains:
    """`pods` are those whose controller the job is, of whatever age. What was there before a suspension is to go."""
    living: dict[Replica, str] = {}
    done: dict[Replica, str] = {}
    owner = job.as_owner
    for pod in pods:
        replica = dialect.names.replica(job, pod.metadata.name)
        if replica is None or not is_of(pod, owner) or _is_of_an_earlier_life(pod, status):
            continue
        if pod.status.phase == "Succeeded":
            done[replica] = node_of(pod.spec)
        elif not pod.metadata.is_ending and not pod.is_finished:
            living[replica] = node_of(pod.spec)
    return Remains(living=living, done={replica: node for replica, node in done.items() if replica not in living})


def rebuilt(found: Remains, least: Size, wish: Size, now: dt.datetime) -> Admission | None:
    """None when nothing lives that would have to stay: then the job queues as a new one does.

    Of a type that may have fewer than wished, as many as there are: it grows later, if there is room.
    """
    if not found.living:
        return None
    there = {**found.done, **found.living}
    size = {
        kind: max(
            least.get(kind, 0),
            min(number, max((replica.index + 1 for replica in there if replica.type is kind), default=0)),
        )
        for kind, number in wish.items()
    }
    return Admission(queued=now, admitted=now, size=size, nodes=_places(size, there))


def housed(admission: Admission, found: Remains) -> Admission:
    """With the places that kube-scheduler has found meanwhile."""
    if NOWHERE not in admission.nodes.values():
        return admission
    nodes = {replica: node or found.living.get(replica, NOWHERE) for replica, node in admission.nodes.items()}
    return replace(admission, nodes=nodes) if nodes != admission.nodes else admission


def is_nowhere(admission: Admission | None) -> bool:
    """Whether some replica of the gang waits for its place while others run."""
    return admission is not None and NOWHERE in admission.nodes.values()


def remembering(scene: Scene) -> Step | None:
    """While pods live that no admission speaks of, none is made and none removed; what decides the job decides it."""
    if not scene.needs_admission or scene.before.admission is not None:
        return None
    if not remains(scene.dialect, scene.job, scene.before, scene.own_pods).living:
        return None
    if scene.framework.judge(scene.sight).signal in {Signal.SUCCEEDED, Signal.FAILED}:
        return None
    return Step(status=status_patch(scene, scene.before))


def _is_of_an_earlier_life(pod: Pod, status: JobStatus) -> bool:
    suspension, created = status.condition(SUSPENDED), pod.metadata.creation_timestamp
    return suspension is not None and created is not None and created < suspension.changed


def _places(size: Size, there: Mapping[Replica, str]) -> Mapping[Replica, str]:
    gang = (Replica(kind, index) for kind, number in size.items() for index in range(number))
    return {replica: there.get(replica, NOWHERE) for replica in gang}
