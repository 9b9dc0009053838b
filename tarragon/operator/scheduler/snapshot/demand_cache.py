"""Caches each job's demands, because reading templates and checking every node is expensive."""

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
"""Maximum number of distinct demands that are shared between jobs."""


@dataclass(frozen=True, slots=True)
class _Template:
    """What a template says, independent of the nodes."""

    group: ReplicaGroup
    each: Resources
    question: Question


class Demanded:
    """The demands by job, kept until the job or its eligible nodes change."""

    def __init__(self, informers: World) -> None:
        self._eligibility = Eligibility(informers)
        self.companies = Companies(informers)
        self._templates: dict[JobId, Sequence[_Template]] = {}
        self._demands_of_job: dict[JobId, Demands] = {}
        self._jobs_asking: dict[Question, set[JobId]] = {}
        self._with_claims: set[JobId] = set()
        self._without_nodes: set[JobId] = set()
        """Jobs without any eligible node; their messages quote the nodes' reasons."""
        self._dropped: set[JobId] = set()
        self._changed_questions: set[Question] = set()
        self._has_changed_nodes = False
        self._shared: dict[Hashable, Demand] = {}
        self.ports: frozenset[str] = frozenset()
        """Host ports that some job requests."""
        informers.nodes.subscribe(self._node_changed)
        for kind_of_storage in informers.of_storage:
            kind_of_storage.subscribe(self._storage_changed)

    def by(self, candidate: Candidate) -> Demands:
        demands = self._demands_of_job.get(candidate.id)
        if demands is None:
            demands = self._demands_of_job[candidate.id] = self._demands(candidate)
            self.ports |= host_ports(demands)
            if any(demand.refused for demand in demands):
                self._without_nodes.add(candidate.id)
        return demands

    def agrees(self, candidate: Candidate, places: Places) -> bool:
        """Whether pod affinity still allows these nodes after other jobs' decisions in the same cycle."""
        templates = self._templates.get(candidate.id)
        return templates is None or self.companies.agrees(candidate, self._eligible(candidate, templates), places)

    def job_changed(self, job: JobId) -> None:
        for template in self._templates.pop(job, ()):
            jobs = self._jobs_asking.get(template.question, set())
            jobs.discard(job)
            if not jobs:
                self._jobs_asking.pop(template.question, None)
        self._with_claims.discard(job)
        self._without_nodes.discard(job)
        self._demands_of_job.pop(job, None)
        self.companies.job_changed(job)

    def dropped(self) -> Collection[JobId]:
        """Jobs whose demands may have changed since the last call although the jobs themselves have not."""
        if self._has_changed_nodes:
            self._drop_affected()
        self._drop(list(self._demands_of_job) if self.companies.has_begun() else self.companies.dropped())
        dropped, self._dropped = self._dropped, set()
        return dropped

    def _demands(self, candidate: Candidate) -> Demands:
        """The demand of each group, in the framework's start order: parameter servers are placed first."""
        templates = self._templates.get(candidate.id)
        if templates is None:
            templates = self._templates[candidate.id] = self._read_templates(candidate)
        eligible = self._eligible(candidate, templates)
        companies = self.companies.of(candidate, eligible)
        return [
            self._demand(candidate, each, eligible[each.group.type], companies.get(each.group.type))
            for each in templates
        ]

    def _eligible(self, candidate: Candidate, templates: Sequence[_Template]) -> Eligible:
        namespace = candidate.job.key.namespace
        return {
            each.group.type: self._eligibility.of(each.group.template, namespace, each.question) for each in templates
        }

    def _read_templates(self, candidate: Candidate) -> Sequence[_Template]:
        order = {kind: position for position, kind in enumerate(candidate.framework.start_order)}
        groups = sorted(candidate.job.groups, key=lambda group: order.get(group.type, len(order)))
        if any(any(claim_names(group.template)) for group in groups):
            self._with_claims.add(candidate.id)
        templates = [
            _Template(group, group_request(group), self._eligibility.question(group.template)) for group in groups
        ]
        for each in templates:
            self._jobs_asking.setdefault(each.question, set()).add(candidate.id)
        return templates

    def _demand(
        self, candidate: Candidate, template: _Template, eligible: frozenset[str], company: Company | None
    ) -> Demand:
        """`eligible`: nodes that satisfy the node constraints; `company`: what pod affinity leaves of them, if any."""
        least, requested = least_and_wish(candidate.job, template.group)
        liked = self._eligibility.liked(template.group.template, template.question)
        demand = Demand(
            type=template.group.type,
            each=template.each,
            minimum=least,
            wish=requested,
            maximum=most(candidate.job, template.group),
            eligible=eligible if company is None else company.ties.eligible,
            refused="" if eligible else self._eligibility.why_nowhere(template.group.template),
            crowded="" if company is None else company.ties.crowded,
            preference=liked if company is None or not company.liked else summed([liked, company.liked]),
            spreads=() if company is None else company.ties.spreads,
        )
        # Equal demands share one object: thousands of them are compared in every cycle.
        if len(self._shared) >= MOST_ALIKE:
            self._shared.clear()
        return self._shared.setdefault((demand.shape, demand.refused, demand.crowded), demand)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        """Note a change of a node; heartbeats do not change which pods may run there."""
        if traits(old) != traits(new):
            self._has_changed_nodes = True
            self.companies.nodes_changed()
            self._changed_questions |= self._eligibility.node_changed(key, new)

    def _drop_affected(self) -> None:
        """Drop the demands affected by all node changes since the last call; claims are checked on every node again."""
        self._drop([*self._with_claims, *self._without_nodes])
        self._drop(
            [job for question in self._eligibility.liked_otherwise() for job in self._jobs_asking.get(question, ())]
        )
        self._without_nodes.clear()
        for question, jobs in self._jobs_asking.items():
            if question in self._changed_questions or not self._eligibility.holds(question):
                self._drop(jobs)
        self._changed_questions.clear()
        self._shared.clear()
        self._has_changed_nodes = False

    def _storage_changed(self, _: Key, __: object, ___: object) -> None:
        """Drop the demands of jobs with claims: only their eligible nodes depend on storage."""
        self._drop(self._with_claims)

    def _drop(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            if self._demands_of_job.pop(job, None) is not None:
                self._dropped.add(job)


def host_ports(demands: Iterable[Demand]) -> frozenset[str]:
    return frozenset(name for demand in demands for name in demand.each if name.startswith(HOST_PORT))
