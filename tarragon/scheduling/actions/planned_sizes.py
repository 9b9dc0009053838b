"""The sizes that gangs are to have so far, while a cycle divides the cluster among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tarragon.job.model import ReplicaType
from tarragon.scheduling.actions.divisible_resources import DivisibleResources
from tarragon.scheduling.api.snapshot import RunningGang, WaitingGang
from tarragon.scheduling.state.candidates import Candidate
from tarragon.scheduling.state.request_table import RequestTable
from tarragon.scheduling.state.size_steps import Cost, SizeStep, total_cost


@dataclass(slots=True, eq=False)
class PlannedSizes:
    """The sizes, by gang. What they take is taken from what is left."""

    left: DivisibleResources
    requests: RequestTable
    starting: list[Sequence[Candidate]] = field(default_factory=list)
    """The waiting gangs that have a size, in groups of equal ones."""
    _sizes: dict[str, int] = field(default_factory=dict)

    def has(self, gang: WaitingGang | RunningGang) -> bool:
        """Whether the gang has a size so far, which may be zero."""
        return gang.name in self._sizes

    def of(self, gang: WaitingGang | RunningGang) -> int:
        """Return the number of replicas of the elastic demand; zero for a gang that has no size so far."""
        return self._sizes.get(gang.name, 0)

    def take(self, candidates: Sequence[Candidate], step: SizeStep) -> None:
        """Take the next step, or the first one, of equal gangs."""
        self.left.take(candidates[0], step.cost, len(candidates))
        self._set(candidates, step.size)

    def take_all(self, candidate: Candidate, size: int) -> None:
        """Take this size for a gang that has none so far."""
        first = candidate.steps[0]
        self.left.take(candidate, first.cost if size == first.size else self.cost_between(candidate, 0, size))
        self._set([candidate], size)

    def resize(self, candidate: Candidate, size: int) -> None:
        """Take what the gang needs to have this size, or give back what it needs no more."""
        self.left.take(candidate, self.cost_between(candidate, self.of(candidate.gang), size))
        self._set([candidate], size)

    def cost_between(self, candidate: Candidate, before: int, after: int) -> Cost:
        """Return what the gang takes more with one size than with another."""
        others: dict[ReplicaType, int] = (
            {} if before or not after else {demand.type: demand.minimum for demand in candidate.gang.demands}
        )
        counts = {**others, candidate.demand.type: after - before}
        return total_cost(candidate.gang.demands, counts, self.requests)

    def _set(self, candidates: Sequence[Candidate], size: int) -> None:
        first = candidates[0].gang
        if isinstance(first, WaitingGang) and first.name not in self._sizes:
            self.starting.append(candidates)
        for candidate in candidates:
            self._sizes[candidate.gang.name] = size
