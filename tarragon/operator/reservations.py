"""What admitted replicas will hold whose pods are not there (yet, or between two tries): kept change by change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from tarragon.base.resources import Resources
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.operator.candidates import Candidate, JobId, replicas_of
from tarragon.operator.gather import World
from tarragon.operator.usage import Sums
from tarragon.plan.capacity import group_request, pod_request


class Reservations:
    """Sums by node. Of each job it is reckoned anew only after the job, or a pod of its, has changed."""

    def __init__(self, world: World) -> None:
        self._pods_of = world.pods_of
        self._jobs = world.jobs
        self._held: dict[JobId, list[tuple[str, Resources]]] = {}
        self._sums = Sums()
        self._changed: set[JobId] = set()
        world.pods.subscribe(self._pod_changed)

    def job_changed(self, job: JobId) -> None:
        self._changed.add(job)

    def forget(self, job: JobId) -> None:
        """It is gone. What it may have reserved is reckoned as ever."""
        if job not in self._held:
            self._changed.discard(job)

    @property
    def unread(self) -> int:
        """Jobs that are to be reckoned anew."""
        return len(self._changed)

    def reckon(self, candidates: Mapping[JobId, Candidate]) -> None:
        """To be called before `on`. Who is no candidate any more reserves nothing."""
        for job in self._changed:
            for node, amounts in self._held.pop(job, ()):
                self._sums.take(node, amounts)
            candidate = candidates.get(job)
            admission = None if candidate is None else candidate.admission
            if candidate is None or admission is None:
                continue
            held = list(self._reserved_by(candidate, admission.nodes))
            for node, amounts in held:
                self._sums.give(node, amounts)
            if held:
                self._held[job] = held
        self._changed.clear()

    def on(self, node: str) -> Resources:
        """What is reserved there, in thousandths."""
        return self._sums.on(node)

    def beyond(self, found: Iterable[tuple[Candidate, Admission]]) -> Sums:
        """What these will reserve once their admissions are written, beyond what they do by those on record."""
        more = Sums()
        for candidate, admission in found:
            known = {} if candidate.admission is None else candidate.admission.nodes
            nodes = {replica: node for replica, node in admission.nodes.items() if known.get(replica) != node}
            for node, amounts in self._reserved_by(candidate, nodes):
                more.give(node, amounts)
        return more

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        """Whose name a pod bears is found out by its owner: a stranger of that name is told in the job's status."""
        for pod in (old, new):
            owner = None if pod is None else pod.metadata.controller
            if owner is not None and self._is_there(owner.kind, Key(key.namespace, owner.name)):
                self._changed.add((owner.kind, Key(key.namespace, owner.name)))

    def _is_there(self, kind: str, job: Key) -> bool:
        """One that comes later, or has gone, is told by `job_changed`."""
        return kind in self._jobs and job in self._jobs[kind].objects

    def _reserved_by(self, candidate: Candidate, nodes: Mapping[Replica, str]) -> Iterator[tuple[str, Resources]]:
        pods = list(replicas_of(candidate, self._pods_of(candidate.object))) if nodes else []
        missing = list(_without_pod(candidate, nodes, pods))
        each = _needs(candidate, {replica.type for replica, _ in missing}, pods)
        for replica, node in missing:
            # The manifest may have lost the whole type since: its places go in this very round.
            if replica.type in each:
                yield node, each[replica.type]


def _without_pod(
    candidate: Candidate, nodes: Mapping[Replica, str], pods: Collection[tuple[Replica, Pod]]
) -> Iterator[tuple[Replica, str]]:
    there = {(replica, pod.spec.node_name) for replica, pod in pods if not pod.is_finished}
    for replica, node in nodes.items():
        if replica not in candidate.status.finished and (replica, node) not in there:
            yield replica, node


def _needs(
    candidate: Candidate, types: AbstractSet[ReplicaType], pods: Iterable[tuple[Replica, Pod]]
) -> Mapping[ReplicaType, Resources]:
    """Where nobody knows the template any more, what was made by it shows it, also after its end."""
    known = [group for group in candidate.job.groups if group.type in types]
    if not candidate.is_refused:
        return {group.type: group_request(group) for group in known}
    templates = {
        group.type: group_request(group) for group in known if group.template.get("spec", {}).get("containers")
    }
    made = {replica.type: pod_request(pod.spec) for replica, pod in pods if replica.type in types - templates.keys()}
    return {**made, **templates}
