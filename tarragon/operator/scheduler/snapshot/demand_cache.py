"""Caches each job's demands, because reading templates and checking every node is expensive."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tarragon.base.gpu_constraints import UNCONSTRAINED
from tarragon.base.resources import Resources
from tarragon.job.model import Decides, ReplicaSpec, ReplicaType
from tarragon.kube.core import Node
from tarragon.kube.meta import JsonObject, Key
from tarragon.kube.scheduling.gpu_shares import share_of_template
from tarragon.kube.scheduling.host_ports import HOST_PORT_PREFIX
from tarragon.operator.informers.candidates import Candidate, JobId, max_replicas, min_and_requested
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.snapshot.eligibility import ConstraintKey, EligibilityCache, scheduling_traits
from tarragon.operator.scheduler.snapshot.pod_affinity_index import (
    AffinityResult,
    Assignments,
    EligibleNodes,
    PodAffinityIndex,
)
from tarragon.plan.nodes.feasibility import TemplateNodes
from tarragon.plan.nodes.preferences import sum_scores
from tarragon.plan.nodes.replica_requests import group_request
from tarragon.plan.nodes.storage import claim_names
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.snapshot import NO_PRESSURE, Demand

Demands = Sequence[Demand]
MAX_SHARED_DEMANDS = 4096
"""Maximum number of distinct demands that are shared between jobs."""


MIN_FORGOTTEN_ANTI_AFFINITIES = 32
"""So many values of anti-affinity on GPUs are known before those that no job has any more are forgotten."""


@dataclass(frozen=True, slots=True)
class _Template:
    """What a template says, independent of the nodes."""

    group: ReplicaSpec
    each: Resources
    share: VgpuShare | None
    key: ConstraintKey


class DemandCache:
    """The demands by job, kept until the job or its eligible nodes change."""

    def __init__(self, informers: Informers) -> None:
        self._eligibility = EligibilityCache(informers)
        self.pod_affinity = PodAffinityIndex(informers)
        self._templates: dict[JobId, Sequence[_Template]] = {}
        self._demands_of_job: dict[JobId, Demands] = {}
        self._jobs_asking: dict[ConstraintKey, set[JobId]] = {}
        self._with_claims: set[JobId] = set()
        self._without_nodes: set[JobId] = set()
        """Jobs without any eligible node; their messages quote the nodes' reasons."""
        self._dropped: set[JobId] = set()
        self._changed_keys: set[ConstraintKey] = set()
        self._has_changed_nodes = False
        self._shared: dict[Hashable, Demand] = {}
        self.requested_host_ports: frozenset[str] = frozenset()
        """Host ports that some job requests."""
        self.are_gpus_shared = False
        """Whether some job requests a part of a GPU."""
        self.gpu_anti_affinities: frozenset[str] | None = None
        """The values of anti-affinity on GPUs; None if no job has constraints on those with whom it shares one."""
        self._max_anti_affinities = MIN_FORGOTTEN_ANTI_AFFINITIES
        informers.nodes.add_event_handler(self._node_changed)
        for kind_of_storage in informers.storage_caches:
            kind_of_storage.add_event_handler(self._storage_changed)

    def demands_of(self, candidate: Candidate) -> Demands:
        demands = self._demands_of_job.get(candidate.id)
        if demands is None:
            demands = self._demands_of_job[candidate.id] = self._demands(candidate)
            self.requested_host_ports |= host_ports(demands)
            self.are_gpus_shared |= any(demand.share is not None for demand in demands)
            self._add_gpu_constraints(demands)
            if any(demand.ineligible_reason for demand in demands):
                self._without_nodes.add(candidate.id)
        return demands

    def _add_gpu_constraints(self, demands: Demands) -> None:
        if all(demand.share is None or demand.share.constraints == UNCONSTRAINED for demand in demands):
            return
        known = self.gpu_anti_affinities or frozenset()
        values = known | _gpu_anti_affinities([demands])
        if len(values) > self._max_anti_affinities:
            # Each job may bring a value of its own. Those of jobs that are gone would accumulate over months.
            values = _gpu_anti_affinities(self._demands_of_job.values())
            self._max_anti_affinities = max(MIN_FORGOTTEN_ANTI_AFFINITIES, 2 * len(values))
        self.gpu_anti_affinities = values

    def satisfies_affinity(self, candidate: Candidate, places: Assignments) -> bool:
        """Whether pod affinity still allows these nodes after other jobs' decisions in the same cycle."""
        templates = self._templates.get(candidate.id)
        return templates is None or self.pod_affinity.try_assign(
            candidate, _eligible(self._nodes(candidate, templates)), places
        )

    def job_changed(self, job: JobId) -> None:
        for template in self._templates.pop(job, ()):
            jobs = self._jobs_asking.get(template.key, set())
            jobs.discard(job)
            if not jobs:
                self._jobs_asking.pop(template.key, None)
        self._with_claims.discard(job)
        self._without_nodes.discard(job)
        self._demands_of_job.pop(job, None)
        self.pod_affinity.job_changed(job)

    def take_changed_jobs(self) -> Collection[JobId]:
        """Jobs whose demands may have changed since the last call although the jobs themselves have not."""
        if self._has_changed_nodes:
            self._drop_affected()
        self._drop(
            list(self._demands_of_job)
            if self.pod_affinity.take_first_pod_flag()
            else self.pod_affinity.take_affected_jobs()
        )
        dropped, self._dropped = self._dropped, set()
        return dropped

    def _demands(self, candidate: Candidate) -> Demands:
        """The demand of each group, in the framework's start order: parameter servers are placed first."""
        templates = self._templates.get(candidate.id)
        if templates is None:
            templates = self._templates[candidate.id] = self._read_templates(candidate)
        nodes = self._nodes(candidate, templates)
        companies = self.pod_affinity.evaluate(candidate, _eligible(nodes))
        return [
            self._demand(candidate, each, nodes[each.group.type], companies.get(each.group.type)) for each in templates
        ]

    def _nodes(self, candidate: Candidate, templates: Sequence[_Template]) -> Mapping[ReplicaType, TemplateNodes]:
        namespace = candidate.job.key.namespace
        return {
            each.group.type: self._eligibility.nodes_of(each.group.template, namespace, each.key) for each in templates
        }

    def _read_templates(self, candidate: Candidate) -> Sequence[_Template]:
        order = {kind: position for position, kind in enumerate(candidate.framework.start_order)}
        groups = sorted(candidate.job.replica_specs, key=lambda group: order.get(group.type, len(order)))
        if any(any(claim_names(group.template)) for group in groups):
            self._with_claims.add(candidate.id)
        templates = [
            _Template(
                group,
                group_request(group),
                _share_of(group.template),
                self._eligibility.constraint_key(group.template),
            )
            for group in groups
        ]
        for each in templates:
            self._jobs_asking.setdefault(each.key, set()).add(candidate.id)
        return templates

    def _demand(
        self, candidate: Candidate, template: _Template, nodes: TemplateNodes, company: AffinityResult | None
    ) -> Demand:
        """`nodes`: those that satisfy the node constraints; `company`: what pod affinity leaves of them, if any."""
        least, requested = min_and_requested(candidate.job, template.group)
        liked = self._eligibility.node_scores(template.group.template, template.key)
        demand = Demand(
            type=template.group.type,
            resources=template.each,
            minimum=least,
            requested=requested,
            decides=template.group.role.decides is Decides.AS_CHIEF,
            is_anchor=template.group.role.is_anchor,
            maximum=max_replicas(candidate.job, template.group),
            eligible_nodes=nodes.eligible if company is None else company.constraints.eligible,
            ineligible_reason="" if nodes.eligible else self._eligibility.ineligible_reason(template.group.template),
            pressured_nodes=nodes.pressured
            if company is None or not company.constraints.narrowing_message
            else NO_PRESSURE,
            affinity_reason="" if company is None else company.constraints.narrowing_message,
            node_scores=liked
            if company is None or not company.node_scores
            else sum_scores([liked, company.node_scores]),
            topology_constraints=() if company is None else company.constraints.spreads,
            share=template.share,
        )
        # Equal demands share one object: thousands of them are compared in every cycle.
        if len(self._shared) >= MAX_SHARED_DEMANDS:
            self._shared.clear()
        return self._shared.setdefault((demand.shape_key, demand.ineligible_reason, demand.affinity_reason), demand)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        """Note a change of a node; heartbeats do not change which pods may run there."""
        if scheduling_traits(old) != scheduling_traits(new):
            self._has_changed_nodes = True
            self.pod_affinity.nodes_changed()
            self._changed_keys |= self._eligibility.node_changed(key, new)

    def _drop_affected(self) -> None:
        """Drop the demands affected by all node changes since the last call; claims are checked on every node again."""
        self._drop([*self._with_claims, *self._without_nodes])
        self._drop([job for key in self._eligibility.drop_changed_scores() for job in self._jobs_asking.get(key, ())])
        self._without_nodes.clear()
        for key, jobs in self._jobs_asking.items():
            if key in self._changed_keys or not self._eligibility.is_cached(key):
                self._drop(jobs)
        self._changed_keys.clear()
        self._shared.clear()
        self._has_changed_nodes = False

    def _storage_changed(self, _: Key, __: object, ___: object) -> None:
        """Drop the demands of jobs with claims: only their eligible nodes depend on storage."""
        self._drop(self._with_claims)

    def _drop(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            if self._demands_of_job.pop(job, None) is not None:
                self._dropped.add(job)


def _eligible(nodes: Mapping[ReplicaType, TemplateNodes]) -> EligibleNodes:
    return {kind: each.eligible for kind, each in nodes.items()}


def _share_of(template: JsonObject) -> VgpuShare | None:
    share = share_of_template(template)
    if share is None:
        return None
    return VgpuShare(share.request, None if share.memory is None else share.memory * 1000, share.constraints)


def _gpu_anti_affinities(jobs: Iterable[Demands]) -> frozenset[str]:
    shares = (demand.share for demands in jobs for demand in demands)
    return frozenset(
        share.constraints.anti_affinity for share in shares if share is not None and share.constraints.anti_affinity
    )


def host_ports(demands: Iterable[Demand]) -> frozenset[str]:
    return frozenset(name for demand in demands for name in demand.resources if name.startswith(HOST_PORT_PREFIX))
