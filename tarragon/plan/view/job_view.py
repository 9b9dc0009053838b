"""Everything that the rules about one job look at, put in order once."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.frameworks.plugin import Dialect, Framework, Sight, Size
from tarragon.job.annotations import is_elastic_by_restart, resizes_by_restart, retryable_codes
from tarragon.job.encoding import recall
from tarragon.job.member import Fate, Member, member
from tarragon.job.model import Replica, SuccessPolicy, TrainingJob
from tarragon.job.status import JobStatus
from tarragon.kube.core import Pod, Service
from tarragon.kube.event import ObjectReference
from tarragon.kube.meta import Key, OwnerIdentity
from tarragon.plan.input.decode_and_validate import Intake
from tarragon.plan.objects.desired import Blueprint, is_placed_by
from tarragon.plan.objects.generation_label import is_outdated
from tarragon.plan.objects.podgroup_kinds import PodGroup
from tarragon.plan.view.actions import Observed
from tarragon.plan.view.stalls import Stall, stall


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A valid job, what is on record of it, and what there is."""

    framework: Framework
    dialect: Dialect
    job: TrainingJob
    taken: Intake
    observed: Observed
    now: dt.datetime
    before: JobStatus
    needs_admission: bool
    """Somebody else's scheduler may place it: then it starts at once, at its wish."""
    size: Size
    replicas: Sequence[Replica]
    """Those that are to be. Of an elastic job's workers one in the middle may have been taken away."""
    members: Mapping[Replica, Member]
    """The pod of every replica that is to be, if there is one of this round."""
    stalls: Mapping[Replica, Stall]
    """What keeps pods of `members` from running, also what is too young to be told."""
    surplus: Sequence[Pod]
    """Pods of the job that no replica of this size has, or that are of an earlier round."""

    @property
    def may_run(self) -> bool:
        return self.before.is_admitted or not self.needs_admission

    @property
    def is_refused(self) -> bool:
        """The job is what it was before an edit that makes no sense; its templates are not known."""
        return bool(self.taken.problems)

    @property
    def sight(self) -> Sight:
        return Sight(job=self.job, size=self.size, members=self.members, status=self.before)

    @property
    def own_pods(self) -> Sequence[Pod]:
        return [*(each.pod for each in self.members.values()), *self.surplus]

    @property
    def own_services(self) -> Sequence[Service]:
        """But for its TensorBoard's."""
        beside = self.dialect.names.tensorboard(self.job)
        owner = self.job.as_owner
        owned = (service for service in self.observed.services if is_of(service, owner))
        return [service for service in owned if service.metadata.name != beside]

    def is_anothers(self, name: str, there: Mapping[Key, Pod] | Mapping[Key, Service]) -> bool:
        """Whether somebody else has something of this name in the job's namespace."""
        found = there.get(Key(self.job.key.namespace, name))
        return found is not None and not is_of(found, self.job.as_owner)

    @property
    def blueprint(self) -> Blueprint:
        return Blueprint(
            framework=self.framework,
            dialect=self.dialect,
            job=self.job,
            size=self.size,
            settings=self.observed.settings,
            storage=self.observed.storage,
            nodes=self.places,
        )

    @property
    def places(self) -> Mapping[Replica, str]:
        """The node of each replica; none where somebody else's scheduler finds them."""
        admission = self.before.admission
        return admission.nodes if admission is not None and self.needs_admission else {}

    @property
    def about(self) -> ObjectReference:
        return ObjectReference(
            api_version=self.framework.resource.api_version, kind=self.job.kind, key=self.job.key, uid=self.job.uid
        )


def scene(framework: Framework, observed: Observed, taken: Intake, now: dt.datetime) -> Scene | None:
    """None for a job that is not valid."""
    if taken.job is None or taken.dialect is None:
        return None
    job = taken.job
    before = recall(observed.object.status).status
    needs_admission = is_placed_by(job, observed.settings.scheduler)
    size = size_of(job, before, needs_admission=needs_admission)
    replicas = _replicas(job, before, size) if needs_admission else tuple(job.replicas(size))
    beside = taken.dialect.names.tensorboard(job)
    owner = job.as_owner
    own = [pod for pod in observed.pods if is_of(pod, owner) and pod.metadata.name != beside]
    chosen = _chosen(job, taken.dialect, frozenset(replicas), own)
    codes = replace(taken.dialect.exit_codes, wished=retryable_codes(job))
    members = {
        replica: found
        for replica, pod in chosen.items()
        for found in [member(pod, framework.main_container, job.policy_of(replica), codes)]
        if found.fate is Fate.DONE or replica in before.finished or not is_outdated(pod, before)
    }
    uids = {found.pod.metadata.uid for found in members.values()}
    return Scene(
        framework=framework,
        dialect=taken.dialect,
        job=job,
        taken=taken,
        observed=observed,
        now=now,
        before=before,
        needs_admission=needs_admission,
        size=size,
        replicas=replicas,
        members=members,
        surplus=[pod for pod in own if pod.metadata.uid not in uids],
        stalls={
            replica: found
            for replica, each in members.items()
            for found in [stall(each.pod, framework.main_container)]
            if found is not None
        },
    )


def size_of(job: TrainingJob, status: JobStatus, *, needs_admission: bool) -> Size:
    """As admitted; at the wish where nobody admits, or nobody has yet. What runs does not just become more."""
    if needs_admission:
        admitted = status.admission is not None and status.is_admitted
        return status.admission.size if status.admission is not None and admitted else job.wished()
    if status.gang is None or not status.gang.size or may_grow(job, status):
        return job.wished()
    return {kind: min(wish, status.gang.size.get(kind, 0)) for kind, wish in job.wished().items()}


def may_grow(job: TrainingJob, status: JobStatus) -> bool:
    """Not once a replica has done its work: the job is near its end, and the room that became free is for others.
    Unless the work of all workers is wanted: what one of them had not done when it lost its place is still to do.

    Nor before it is on record what those that run were told of each other.
    """
    waits_for_all = job.success_policy is SuccessPolicy.ALL_WORKERS and not job.has_chief
    if status.finished and not (waits_for_all and job.elastic is not None and not is_elastic_by_restart(job)):
        return False
    return job.elastic is not None or (resizes_by_restart(job) and status.gang is not None and bool(status.gang.size))


def is_of(owned: Pod | Service | PodGroup, owner: OwnerIdentity) -> bool:
    """Whether the job of this identity (`as_owner`) controls the object."""
    return owned.metadata.controlled_by == owner


def _replicas(job: TrainingJob, status: JobStatus, size: Size) -> Sequence[Replica]:
    """Those that were given places, where each was; else as many as there are to be, from the first."""
    admission = status.admission
    placed = admission.nodes.keys() if admission is not None and admission.admitted is not None else ()
    if Counter(replica.type for replica in placed) != Counter(size):
        return tuple(job.replicas(size))
    order = {group.type: position for position, group in enumerate(job.groups)}
    there = (replica for replica in placed if replica.type in order)
    return sorted(there, key=lambda replica: (order[replica.type], replica.index))


def _chosen(job: TrainingJob, dialect: Dialect, replicas: Container[Replica], own: Iterable[Pod]) -> dict[Replica, Pod]:
    """Of each wanted replica the newest pod. Names tell, not labels: labels can be edited."""
    chosen: dict[Replica, Pod] = {}
    for pod in sorted(own, key=_age):
        replica = dialect.names.replica(job, pod.metadata.name)
        if replica is not None and replica in replicas:
            chosen[replica] = pod
    return chosen


def _age(pod: Pod) -> tuple[float, str]:
    created = pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, pod.metadata.uid)
