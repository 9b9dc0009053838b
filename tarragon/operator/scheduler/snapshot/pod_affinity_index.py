"""What rules between pods leave to each job: asked when its demands are worked out, told when that may have changed.

Where no pod and no template has such a rule, nothing is kept and nothing is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.kube.core import Pod, PodSpec
from tarragon.kube.meta import Key, ObjectMeta, OwnerReference
from tarragon.operator.informers.candidates import Candidate, JobId
from tarragon.operator.informers.informers import World
from tarragon.plan.nodes.affinity_terms import Labels, Pair, Term
from tarragon.plan.nodes.capacity import pod_spec
from tarragon.plan.nodes.neighbours import ByLabel, Neighbours, is_neighbour, keeps_off
from tarragon.plan.nodes.preferences import Scores, of_pods
from tarragon.plan.nodes.topology import Gang, Member, Sites, Ties, keeps
from tarragon.plan.objects.desired import pod_labels

Eligible = Mapping[ReplicaType, frozenset[str]]
Places = Mapping[Replica, str]


@dataclass(frozen=True, slots=True)
class Company:
    """Of one type: where its replicas may be, how they have to lie, and where they like to be."""

    ties: Ties
    liked: Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """Pods of one job that are not there."""

    candidate: Candidate | None
    places: Places = field(default_factory=dict)
    """Of its replicas that have no pods yet."""
    asked: Sequence[Pod] = ()
    """Those that the server was asked for; what they were to be may have lost its place, or be gone."""


class Companies:
    """A job is asked about again only after a pod has changed that one of its rules selects, or that keeps it off."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sites: Sites | None = None
        self._others: Neighbours | None = None
        self._coming: dict[JobId, Coming] = {}
        self._shown: dict[JobId, list[Pod]] = {}
        self._watchers: dict[Pair | None, dict[JobId, list[Term]]] = {}
        self._watches: dict[JobId, list[Pair | None]] = {}
        self._labels: ByLabel[tuple[JobId, ReplicaType]] = ByLabel()
        self._asked: dict[JobId, list[Member]] = {}
        self._dropped: set[JobId] = set()
        self._has_begun = False
        world.pods.subscribe(self._pod_changed)

    def of(self, candidate: Candidate, eligible: Eligible) -> Mapping[ReplicaType, Company]:
        """`eligible`: by what its templates ask of nodes alone. Empty where no rule is about the job."""
        is_bound = any(may_bind(group.template.get("spec", {})) for group in candidate.job.groups)
        if not is_bound and not self._is_active:
            return {}
        members = self._members(candidate)
        self._remember(candidate.id, members)
        others, sites = self._neighbours(), self._current()
        ties = Gang(members, candidate.job.as_owner).ties(eligible, sites, others)
        return {
            member.type: Company(ties[member.type], of_pods(member, sites, others) if member.bonds else {})
            for member in members
        }

    def job_changed(self, job: JobId) -> None:
        for member in self._asked.pop(job, ()):
            self._labels.drop((job, member.type))
        for choice in self._watches.pop(job, ()):
            watching = self._watchers.get(choice, {})
            watching.pop(job, None)
            if not watching:
                self._watchers.pop(choice, None)
        self._dropped.discard(job)

    def nodes_changed(self) -> None:
        """Their labels, or who they are: domains are others now."""
        self._sites = None
        self._dropped |= self._asked.keys()

    def has_begun(self) -> bool:
        """Whether, since this was asked last, the first pod with a rule has come: it may be about any job."""
        begun, self._has_begun = self._has_begun, False
        return begun

    def dropped(self) -> Collection[JobId]:
        """Jobs that rules may leave something else to than when they were asked about."""
        dropped, self._dropped = self._dropped, set()
        return dropped

    def promise(self, job: JobId, coming: Coming) -> None:
        """Others are to see these as if they were there."""
        if coming.places or coming.asked:
            self._coming[job] = coming
        elif self._coming.pop(job, None) is None:
            return
        if self._is_active:
            self._show(job)

    def agrees(self, candidate: Candidate, eligible: Eligible, places: Places) -> bool:
        """Whether nobody who has got a place since is in the way of these. If so, they are promised."""
        before = {} if candidate.admission is None else candidate.admission.nodes
        added = {replica: node for replica, node in places.items() if before.get(replica) != node}
        if not added or not self._is_active:
            return True
        for kind, company in self.of(candidate, eligible).items():
            new = [replica for replica in added if replica.type is kind]
            if any(added[replica] not in company.ties.eligible for replica in new):
                return False
            if any(not keeps(spread, places, new) for spread in company.ties.spreads):
                return False
        known = self._coming.get(candidate.id, Coming(candidate=candidate))
        self.promise(candidate.id, replace(known, candidate=candidate, places={**known.places, **added}))
        return True

    @property
    def _is_active(self) -> bool:
        return self._others is not None

    def _neighbours(self) -> Neighbours:
        if self._others is None:
            self._others = Neighbours(self._world.pods.objects.values())
            for job in self._coming:
                self._show(job)
        return self._others

    def _show(self, job: JobId) -> None:
        """What may come of it, instead of what might."""
        for pod in self._shown.pop(job, ()):
            self._put(pod.metadata.key, self._world.pods.objects.get(pod.metadata.key))
            self._tell(pod)
        coming = self._coming.get(job)
        if coming is None:
            return
        # Of two that have one name only one comes, and rather the one whose place stands.
        self._shown[job] = [*filter(is_neighbour, coming.asked), *self._promised(coming)]
        for pod in self._shown[job]:
            self._put(pod.metadata.key, pod)
            self._tell(pod)

    def _promised(self, coming: Coming) -> Iterator[Pod]:
        candidate = coming.candidate
        if candidate is None:
            return
        members = {member.type: member for member in self._members(candidate)}
        for replica, node in coming.places.items():
            if replica.type in members:
                yield _promised(candidate, replica, members[replica.type], node)

    def _current(self) -> Sites:
        if self._sites is None:
            self._sites = Sites(self._world.nodes.objects.values())
        return self._sites

    def _members(self, candidate: Candidate) -> list[Member]:
        job = candidate.job
        return [
            Member.of(group.type, job.key.namespace, common_labels(candidate, group.type), pod_spec(group.template))
            for group in job.groups
            if group.wish
        ]

    def _remember(self, job: JobId, members: list[Member]) -> None:
        self.job_changed(job)
        self._asked[job] = members
        for member in members:
            self._labels.put((job, member.type), member.labels)
            for term in member.bonds.terms:
                for choice in term.choices or (None,):
                    self._watchers.setdefault(choice, {}).setdefault(job, []).append(term)
                    self._watches.setdefault(job, []).append(choice)

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        if _as_neighbour(old) == _as_neighbour(new):
            return
        if self._others is None:
            if new is None or not is_neighbour(new) or not keeps_off(new):
                return
            self._neighbours()
            self._has_begun = True
        self._put(key, new)
        for pod in (old, new):
            if pod is not None and is_neighbour(pod):
                self._tell(pod)

    def _put(self, key: Key, pod: Pod | None) -> None:
        others = self._neighbours()
        if pod is None:
            others.drop(key)
        else:
            others.put(pod)

    def _tell(self, pod: Pod) -> None:
        """Whoever has a rule that selects the pod, and whomever the pod keeps off."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for choice in (None, *labels.items()):
            for job, terms in self._watchers.get(choice, {}).items():
                if job not in self._dropped and any(term.matches(namespace, labels) for term in terms):
                    self._dropped.add(job)
        for term in keeps_off(pod):
            self._dropped |= {job for job, _ in self._labels.having(term.choices)}


def may_bind(spec: Mapping[str, object]) -> bool:
    """Whether a template says anything of other pods; read quickly, as hardly any does."""
    affinity = spec.get("affinity")
    of_pods = isinstance(affinity, Mapping) and ("podAffinity" in affinity or "podAntiAffinity" in affinity)
    return of_pods or bool(spec.get("topologySpreadConstraints"))


def common_labels(candidate: Candidate, kind: ReplicaType) -> Labels:
    """Of all pods of one type: without those that tell them apart."""
    one, other = (
        pod_labels(candidate.framework, candidate.dialect, candidate.job, Replica(kind, index)) for index in (1, 2)
    )
    return {name: value for name, value in one.items() if other.get(name) == value}


def _as_neighbour(pod: Pod | None) -> object:
    """What others may see of it."""
    if pod is None or not is_neighbour(pod):
        return None
    return pod.spec.node_name, pod.metadata.is_ending, pod.metadata.labels, pod.spec.affinity


def _promised(candidate: Candidate, replica: Replica, member: Member, node: str) -> Pod:
    job: TrainingJob = candidate.job
    owner = OwnerReference(api_version=job.api_version, kind=job.kind, name=job.key.name, uid=job.uid, controller=True)
    metadata = ObjectMeta(
        name=candidate.dialect.names.pod(job, replica),
        namespace=job.key.namespace,
        labels=dict(member.labels),
        owner_references=[owner],
    )
    return Pod(metadata=metadata, spec=PodSpec(node_name=node, affinity=member.spec.affinity))
