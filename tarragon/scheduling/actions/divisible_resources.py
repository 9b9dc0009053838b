"""What is left to divide among gangs, in total and on the nodes that each may use."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tarragon.base.resources import PODS
from tarragon.scheduling.api.snapshot import RunningGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.placement.fit import is_feasible
from tarragon.scheduling.state.candidates import Candidate
from tarragon.scheduling.state.inventory import ScoreArray
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import GangShape
from tarragon.scheduling.state.node_requests import Amounts
from tarragon.scheduling.state.size_steps import Cost, SizeStep


class DivisibleResources:
    """All that is free or becomes free, and what the gangs hold whose size is decided. Amounts may become negative for
    gangs that cannot be stopped.
    """

    def __init__(self, cycle: SchedulingCycle, resizable: Amounts) -> None:
        self._cycle = cycle
        self._ledger = cycle.allocations.ledger_without(resizable, cycle.future_free) if len(resizable) else None
        table = self._with_nothing_held.table.clip(min=0)
        vgpus = cycle.nodes.layout.vgpus
        if vgpus is not None:
            table[:, vgpus.free] += vgpus.fractions(self._with_nothing_held.table)
        self._total = [float(amount) for amount in table.sum(axis=0, dtype=float)]
        self._capacity = cycle.memory.requests.total_capacity
        self._table = table
        self._by_mask: dict[int, list[float]] = {}
        self._is_tracked = cycle.usage.is_tracked
        self._quotas = _QueueLimits(cycle, resizable)
        self._could_start: dict[GangShape, bool] = {}

    @property
    def _with_nothing_held(self) -> NodeLedger:
        """The nodes as they would be if all gangs whose size is decided had ended."""
        return self._ledger or self._cycle.future_free

    def could_start(self, candidate: Candidate) -> bool:
        """Whether the gang would fit at its smallest size if all gangs whose size is decided had ended."""
        if isinstance(candidate.gang, RunningGang):
            return True
        shape = self._cycle.memory.entries_by_name[candidate.gang.name].shape
        could_start = self._could_start.get(shape)
        if could_start is None:
            could_start = self._could_start[shape] = is_feasible(shape.minimum_demands, self._counted)
        return could_start

    @cached_property
    def _counted(self) -> NodeLedger:
        """The nodes with nothing held, with the room for all known requests: quick to count, but often nobody asks."""
        ledger = self._with_nothing_held
        if self._ledger is not None:
            index = ledger.requests.capacity_index
            index.last_divisible = ledger.update_totals(index.last_divisible)
        return ledger

    def holds(self, candidate: Candidate, step: SizeStep) -> bool:
        """Whether enough is left on nodes that the gang may use. No quota takes what it has already."""
        return self.times(candidate, step, 1) > 0

    def times(self, candidate: Candidate, step: SizeStep, most: int) -> int:
        """Return for how many such gangs enough is left: none, or at least one and `most` at most."""
        own, total = self._by_mask.get(candidate.request.mask_number) or self._of_mask(candidate), self._total
        for column, amount in step.cost:
            if own[column] < amount or total[column] < amount:
                return 0
        if most > 1:
            left = (min(own[column], total[column]) // amount for column, amount in step.cost if amount)
            most = min(most, int(min(left, default=most)))
        if not self._is_tracked or step.size <= candidate.size:
            return most
        return most if self._quotas.hold(candidate.gang.queue, step.cost) else 0

    def largest_part(self, candidate: Candidate, step: SizeStep, size_before: int) -> SizeStep | None:
        """Return the largest part of a step from this size for which enough is left; None if there is none."""
        least = size_before + 1 if size_before else max(1, candidate.demand.minimum)
        each = dict(candidate.request.costs)
        for size in range(step.size - 1, least - 1, -1):
            cost = tuple((column, amount - (step.size - size) * each.get(column, 0)) for column, amount in step.cost)
            part = SizeStep(size, cost, step.value)
            if self.holds(candidate, part):
                return part
        return None

    def take(self, candidate: Candidate, cost: Cost, times: int = 1) -> None:
        """Take so many times this much, or give it back where it is negative."""
        own, total = self._by_mask.get(candidate.request.mask_number) or self._of_mask(candidate), self._total
        for column, amount in cost:
            total[column] -= amount * times
            if own is not total:
                own[column] -= amount * times
        if self._is_tracked:
            self._quotas.charge(candidate.gang.queue, cost, times)

    def share_of(self, cost: Cost) -> float:
        """Return the largest part of the cluster's capacity of any resource that this takes."""
        return max((amount / self._capacity[column] for column, amount in cost), default=0.0)

    def dominant_share(self, queue: str) -> float:
        """Return the share of a queue so far; zero without fair shares."""
        return self._quotas.dominant_share(queue)

    def _of_mask(self, candidate: Candidate) -> list[float]:
        """Return what is left on the nodes that the gang may use: the total itself if these are all nodes."""
        request = candidate.request
        if request.mask.all():
            own = self._total
        else:
            own = [float(amount) for amount in self._table[request.mask].sum(axis=0, dtype=float)]
        self._by_mask[request.mask_number] = own
        return own


class _QueueLimits:
    """What each queue holds beside the gangs whose size is decided, and what is planned for these."""

    def __init__(self, cycle: SchedulingCycle, resizable: Amounts) -> None:
        self._cycle = cycle
        self._rules = cycle.snapshot.rules
        self._columns = cycle.nodes.layout.columns
        self._names = cycle.nodes.resources
        self._capacity = cycle.nodes.capacity.sum(axis=0, dtype=float)
        self._planned: dict[str, ScoreArray] = {}
        if cycle.usage.is_tracked:
            self._release(resizable)

    def hold(self, queue: str, cost: Cost) -> bool:
        """Whether the quota of the queue permits this much more."""
        quota = self._cycle.usage.quota(queue)
        if not quota:
            return True
        planned = self._of(queue)
        return all(
            planned[column] + amount <= quota[self._names[column]]
            for column, amount in cost
            if self._names[column] in quota
        )

    def charge(self, queue: str, cost: Cost, times: int) -> None:
        planned = self._of(queue)
        for column, amount in cost:
            planned[column] += amount * times

    def dominant_share(self, queue: str) -> float:
        if not self._rules.is_fair_share:
            return 0.0
        planned = self._of(queue)
        shares = [
            planned[column] / self._capacity[column]
            for column, name in enumerate(self._names)
            if name != PODS and self._capacity[column] > 0
        ]
        rules = self._rules.queues.get(queue)
        return float(max(shares, default=0.0)) / (1.0 if rules is None else rules.weight)

    def _of(self, queue: str) -> ScoreArray:
        planned = self._planned.get(queue)
        if planned is None:
            planned = self._planned[queue] = np.zeros(len(self._names))
            for name, amount in self._cycle.usage.held(queue).items():
                if name in self._columns:
                    planned[self._columns[name]] = amount
        return planned

    def _release(self, resizable: Amounts) -> None:
        running = self._cycle.snapshot.running
        held, vgpus = self._cycle.allocations, self._cycle.nodes.layout.vgpus
        for index in resizable:
            released = held.amounts[held.owned_by([int(index)])].sum(axis=0)
            if vgpus is not None:
                released[vgpus.free] += vgpus.gpus_in(released)
            self._of(running[index].queue)[:] -= released
