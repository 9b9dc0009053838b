"""What admitted replicas will hold whose pods are not there, and which of the pods that are there will leave.

A pod that may come counts as one that is there: it holds its place also if its replica has lost that meanwhile.
Both are kept change by change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from tarragon.base.resources import Resources, fits
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.operator.informers.candidates import Candidate, JobId, replicas_of
from tarragon.operator.informers.informers import World
from tarragon.operator.informers.usage import Sums, holds, request_of
from tarragon.operator.scheduler.admission.faults import Faults
from tarragon.operator.scheduler.snapshot.pod_affinity_index import Coming, Companies
from tarragon.plan.nodes.capacity import group_request, pod_request
from tarragon.plan.nodes.left_to_kube_scheduler import is_left
from tarragon.plan.reconcile.adoption import is_nowhere

Pods = Collection[tuple[Replica, Pod]]
Amounts = tuple[str, Resources]
"""On a node."""


class Reservations:
    """Of each job it is reckoned anew only after the job, or a pod of its, has changed."""

    def __init__(self, world: World, faults: Faults, companies: Companies) -> None:
        self.held = Sums()
        """What is reserved on each node, in thousandths."""
        self.releasing = Sums()
        """What pods hold that nobody has told to end yet, and are to; less what ending ones hold whose replica comes
        back to the same place."""
        self._faults = faults
        self._companies = companies
        self._world = world
        self._jobs = world.jobs
        self._held: dict[JobId, list[Amounts]] = {}
        self._releasing: dict[JobId, list[Amounts]] = {}
        self._changed: set[JobId] = set()
        world.pods.subscribe(self._pod_changed)
        world.unmade.subscribe(self._changed.add)

    def job_changed(self, job: JobId) -> None:
        self._changed.add(job)

    def forget(self, job: JobId) -> None:
        """It is gone. What it may have reserved is reckoned as ever."""
        if job not in self._held and job not in self._releasing and not self._world.unmade.of(job):
            self._changed.discard(job)

    @property
    def unread(self) -> int:
        """Jobs that are to be reckoned anew."""
        return len(self._changed)

    def reckon(self, candidates: Mapping[JobId, Candidate]) -> None:
        """To be called before sums are read. Who is no candidate any more reserves nothing.

        What can't be reckoned is tried again in the next round, and until then stays what it was.
        """
        for job in list(self._changed):
            with self._faults.of(job, "see what it holds"):
                self._reckon(job, candidates.get(job))
                self._changed.discard(job)

    def beyond(self, found: Iterable[tuple[Candidate, Admission]]) -> Sums:
        """What these will reserve once their admissions are written, beyond what they do by those on record."""
        more = Sums()
        for candidate, admission in found:
            known = _nodes(candidate)
            nodes = {replica: node for replica, node in admission.nodes.items() if known.get(replica) != node}
            pods = self._pods(candidate, self._world.unmade.of(candidate.id)) if nodes else []
            for node, amounts in _reserved_by(candidate, nodes, pods):
                more.give(node, amounts)
        return more

    def _reckon(self, job: JobId, candidate: Candidate | None) -> None:
        unmade = self._world.unmade.of(job)
        held = [_amounts(pod) for pod in unmade if holds(pod)]
        leaving = [_amounts(pod) for pod in unmade if holds(pod) and not _is_of(candidate, pod)]
        missing: dict[Replica, str] = {}
        if candidate is not None:
            pods = self._pods(candidate, unmade)
            held += _reserved_by(candidate, _nodes(candidate), pods)
            leaving += _released_by(candidate, pods)
            missing.update(_without_pod(candidate, _nodes(candidate), self._pods(candidate, ())))
        self._companies.promise(job, Coming(candidate=candidate, places=missing, asked=unmade))
        _exchange(self._held, self.held, job, held)
        _exchange(self._releasing, self.releasing, job, leaving)

    def _pods(self, candidate: Candidate, unmade: Sequence[Pod]) -> Pods:
        ours = [pod for pod in unmade if _is_of(candidate, pod)]
        return list(replicas_of(candidate, [*self._world.pods_of(candidate.object), *ours]))

    def _pod_changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        """Whose name a pod bears is found out by its owner: a stranger of that name is told in the job's status."""
        for pod in (old, new):
            job = None if pod is None else self._world.job_of(pod.metadata)
            if job is not None and self._is_there(job):
                self._changed.add(job)

    def _is_there(self, job: JobId) -> bool:
        """One that comes later, or has gone, is told by `job_changed`."""
        kind, key = job
        return key in self._jobs[kind].objects


def _exchange(known: dict[JobId, list[Amounts]], sums: Sums, job: JobId, found: list[Amounts]) -> None:
    before = known.pop(job, [])
    if found:
        known[job] = found
    if before == found:
        return
    for node, amounts in before:
        sums.take(node, amounts)
    for node, amounts in found:
        sums.give(node, amounts)


def _amounts(pod: Pod) -> Amounts:
    return pod.spec.node_name, request_of(pod)


def _is_of(candidate: Candidate | None, pod: Pod) -> bool:
    """Not if it was asked for by an earlier job of the same name."""
    return candidate is not None and pod.metadata.controlled_by == candidate.object.as_owner


def _nodes(candidate: Candidate) -> Mapping[Replica, str]:
    return {} if candidate.admission is None else candidate.admission.nodes


def _reserved_by(candidate: Candidate, nodes: Mapping[Replica, str], pods: Pods) -> Iterator[Amounts]:
    missing = list(_without_pod(candidate, nodes, pods))
    each = _needs(candidate, {replica.type for replica, _ in missing}, pods)
    for replica, node in missing:
        # The manifest may have lost the whole type since: its places go in this very round.
        if replica.type in each:
            yield node, each[replica.type]


def _released_by(candidate: Candidate, pods: Pods) -> Iterator[Amounts]:
    """Nothing of what others place: where its replicas are to be, nobody has told us."""
    admission = candidate.admission
    if admission is None or is_left(admission) or is_nowhere(admission):
        return
    kept = {place for place in admission.nodes.items() if place[0] not in candidate.status.finished}
    held = [(replica, pod) for replica, pod in pods if holds(pod)]
    going_on = {(replica, pod.spec.node_name) for replica, pod in held if not pod.metadata.is_ending}
    for replica, pod in held:
        place = replica, pod.spec.node_name
        if not pod.metadata.is_ending and replica not in admission.nodes:
            yield pod.spec.node_name, request_of(pod)
        elif pod.metadata.is_ending and place in kept - going_on and _is_enough(candidate, replica, pod):
            going_on.add(place)
            yield pod.spec.node_name, {name: -amount for name, amount in request_of(pod).items()}


def _without_pod(candidate: Candidate, nodes: Mapping[Replica, str], pods: Pods) -> Iterator[tuple[Replica, str]]:
    there = {
        (replica, pod.spec.node_name)
        for replica, pod in pods
        if not pod.is_finished and (not pod.metadata.is_ending or _is_enough(candidate, replica, pod))
    }
    for replica, node in nodes.items():
        if replica not in candidate.status.finished and (replica, node) not in there:
            yield replica, node


def _is_enough(candidate: Candidate, replica: Replica, pod: Pod) -> bool:
    """Whether who comes back after the pod needs no more than it holds: the template may be another one by now."""
    known = () if candidate.is_refused else candidate.job.groups
    return all(fits(group_request(group), request_of(pod)) for group in known if group.type is replica.type)


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
