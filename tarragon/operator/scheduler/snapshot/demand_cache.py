"""What each job asks of its places, worked out once: reading templates and asking every node is dear."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from tarragon.base.resources import Resources
from tarragon.job.model import ReplicaGroup
from tarragon.kube.core import Node
from tarragon.kube.meta import Key
from tarragon.operator.informers.candidates import Candidate, JobId, least_and_wish, most
from tarragon.operator.informers.informers import World
from tarragon.operator.scheduler.snapshot.eligibility import Eligibility, Question, traits
from tarragon.operator.scheduler.snapshot.pod_affinity_index import Companies, Company, Eligible, Places
from tarragon.plan.nodes.capacity import HOST_PORT, group_request
from tarragon.plan.nodes.preferences import summed
from tarragon.plan.nodes.storage import claim_names
from tarragon.scheduling.api.snapshot import Demand

Demands = Sequence[Demand]
MOST_ALIKE = 4096
"""Kinds of demand that are kept in mind."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What a template says, whatever the nodes answer."""

    group: ReplicaGroup
    each: Resources
    question: Question


class Demanded:
    """Kept until the job, or what the nodes say to it, changes."""

    def __init__(self, world: World) -> None:
        self._eligibility = Eligibility(world)
        self.companies = Companies(world)
        self._read: dict[JobId, Sequence[_Read]] = {}
        self._known: dict[JobId, Demands] = {}
        self._askers: dict[Question, set[JobId]] = {}
        self._with_claims: set[JobId] = set()
        self._nowhere: set[JobId] = set()
        """Those that no node takes: what each of them says is told."""
        self._dropped: set[JobId] = set()
        self._answered_otherwise: set[Question] = set()
        self._has_other_nodes = False
        self._alike: dict[Hashable, Demand] = {}
        self.ports: frozenset[str] = frozenset()
        """Of the nodes themselves, that somebody has asked for."""
        world.nodes.subscribe(self._node_changed)
        for kind_of_storage in world.of_storage:
            kind_of_storage.subscribe(self._storage_changed)

    def by(self, candidate: Candidate) -> Demands:
        known = self._known.get(candidate.id)
        if known is None:
            known = self._known[candidate.id] = self._demands(candidate)
            self.ports |= host_ports(known)
            if any(demand.refused for demand in known):
                self._nowhere.add(candidate.id)
        return known

    def agrees(self, candidate: Candidate, places: Places) -> bool:
        """Whether rules between pods still allow these places, after what others have got in the same round."""
        read = self._read.get(candidate.id)
        return read is None or self.companies.agrees(candidate, self._eligible(candidate, read), places)

    def job_changed(self, job: JobId) -> None:
        for read in self._read.pop(job, ()):
            askers = self._askers.get(read.question, set())
            askers.discard(job)
            if not askers:
                self._askers.pop(read.question, None)
        self._with_claims.discard(job)
        self._nowhere.discard(job)
        self._known.pop(job, None)
        self.companies.job_changed(job)

    def dropped(self) -> Collection[JobId]:
        """Jobs that ask for something else than they did when this was asked last, though they have not changed."""
        if self._has_other_nodes:
            self._ask_again()
        self._drop(list(self._known) if self.companies.has_begun() else self.companies.dropped())
        dropped, self._dropped = self._dropped, set()
        return dropped

    def _demands(self, candidate: Candidate) -> Demands:
        """Of each group, in the framework's start order: the parameter servers get their places first."""
        read = self._read.get(candidate.id)
        if read is None:
            read = self._read[candidate.id] = self._taken_in(candidate)
        eligible = self._eligible(candidate, read)
        companies = self.companies.of(candidate, eligible)
        return [
            self._demand(candidate, each, eligible[each.group.type], companies.get(each.group.type)) for each in read
        ]

    def _eligible(self, candidate: Candidate, several: Sequence[_Read]) -> Eligible:
        namespace = candidate.job.key.namespace
        return {
            each.group.type: self._eligibility.of(each.group.template, namespace, each.question) for each in several
        }

    def _taken_in(self, candidate: Candidate) -> Sequence[_Read]:
        order = {kind: position for position, kind in enumerate(candidate.framework.start_order)}
        groups = sorted(candidate.job.groups, key=lambda group: order.get(group.type, len(order)))
        if any(any(claim_names(group.template)) for group in groups):
            self._with_claims.add(candidate.id)
        read = [_Read(group, group_request(group), self._eligibility.question(group.template)) for group in groups]
        for each in read:
            self._askers.setdefault(each.question, set()).add(candidate.id)
        return read

    def _demand(self, candidate: Candidate, read: _Read, eligible: frozenset[str], company: Company | None) -> Demand:
        """`eligible`: by what it asks of nodes; `company`: what other pods leave of that, where they matter."""
        least, wish = least_and_wish(candidate.job, read.group)
        liked = self._eligibility.liked(read.group.template, read.question)
        demand = Demand(
            type=read.group.type,
            each=read.each,
            minimum=least,
            wish=wish,
            maximum=most(candidate.job, read.group),
            eligible=eligible if company is None else company.ties.eligible,
            refused="" if eligible else self._eligibility.why_nowhere(read.group.template),
            crowded="" if company is None else company.ties.crowded,
            preference=liked if company is None or not company.liked else summed([liked, company.liked]),
            spreads=() if company is None else company.ties.spreads,
        )
        # One object for all that are alike: thousands of them are compared in every round.
        if len(self._alike) >= MOST_ALIKE:
            self._alike.clear()
        return self._alike.setdefault((demand.shape, demand.refused, demand.crowded), demand)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        """Heartbeats change nothing of who may run there."""
        if traits(old) != traits(new):
            self._has_other_nodes = True
            self.companies.nodes_changed()
            self._answered_otherwise |= self._eligibility.node_changed(key, new)

    def _ask_again(self) -> None:
        """Once for all nodes that have changed since. Claims are looked up on every node anew."""
        self._drop([*self._with_claims, *self._nowhere])
        self._drop([job for question in self._eligibility.liked_otherwise() for job in self._askers.get(question, ())])
        self._nowhere.clear()
        for question, askers in self._askers.items():
            if question in self._answered_otherwise or not self._eligibility.holds(question):
                self._drop(askers)
        self._answered_otherwise.clear()
        self._alike.clear()
        self._has_other_nodes = False

    def _storage_changed(self, _: Key, __: object, ___: object) -> None:
        """Only what has claims may be able to run elsewhere now."""
        self._drop(self._with_claims)

    def _drop(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            if self._known.pop(job, None) is not None:
                self._dropped.add(job)


def host_ports(demands: Iterable[Demand]) -> frozenset[str]:
    return frozenset(name for demand in demands for name in demand.each if name.startswith(HOST_PORT))
