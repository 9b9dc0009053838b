"""What each job asks of its places, worked out once: reading templates and asking every node is dear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tarragon.kube.core import Node
from tarragon.kube.meta import Key
from tarragon.operator.candidates import Candidate, JobId, least_and_wish, most
from tarragon.operator.eligibility import Eligibility, traits
from tarragon.operator.gather import World
from tarragon.plan.capacity import HOST_PORT, group_request
from tarragon.plan.storage import claim_names
from tarragon.scheduling.snapshot import Demand


class Demanded:
    """Kept until the job, or what the nodes say to it, changes."""

    def __init__(self, world: World) -> None:
        self._eligibility = Eligibility(world)
        self._known: dict[JobId, Sequence[Demand]] = {}
        self._with_claims: set[JobId] = set()
        self.ports: frozenset[str] = frozenset()
        """Of the nodes themselves, that somebody has asked for."""
        world.nodes.subscribe(self._node_changed)
        for kind_of_storage in world.of_storage:
            kind_of_storage.subscribe(self._storage_changed)

    def by(self, candidate: Candidate) -> Sequence[Demand]:
        known = self._known.get(candidate.id)
        if known is None:
            known = self._known[candidate.id] = demands(candidate, self._eligibility)
            self.ports |= host_ports(known)
            if any(any(claim_names(group.template)) for group in candidate.job.groups):
                self._with_claims.add(candidate.id)
        return known

    def job_changed(self, job: JobId) -> None:
        self._known.pop(job, None)

    def _node_changed(self, _: Key, old: Node | None, new: Node | None) -> None:
        """Heartbeats change nothing of who may run there."""
        if traits(old) != traits(new):
            self._known.clear()
            self._eligibility.forget()

    def _storage_changed(self, _: Key, __: object, ___: object) -> None:
        """Only what has claims may be able to run elsewhere now."""
        for job in self._with_claims:
            self._known.pop(job, None)
        self._with_claims.clear()


def demands(candidate: Candidate, eligibility: Eligibility) -> Sequence[Demand]:
    """Of each group, in the framework's start order: the parameter servers get their places first."""
    order = {kind: position for position, kind in enumerate(candidate.framework.start_order)}
    groups = sorted(candidate.job.groups, key=lambda group: order.get(group.type, len(order)))
    return [
        Demand(
            type=group.type,
            each=group_request(group),
            minimum=bounds[0],
            wish=bounds[1],
            maximum=most(candidate.job, group),
            eligible=eligible,
            refused="" if eligible else eligibility.why_nowhere(group.template),
        )
        for group in groups
        for bounds in [least_and_wish(candidate.job, group)]
        for eligible in [eligibility.of(group.template, candidate.job.key.namespace)]
    ]


def host_ports(demands: Iterable[Demand]) -> frozenset[str]:
    return frozenset(name for demand in demands for name in demand.each if name.startswith(HOST_PORT))
