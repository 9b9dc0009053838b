"""What elastic gangs can give back, and which part of it has to be given back so that another gang can start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np

from tarragon.job.model import Replica
from tarragon.job.places import node_of
from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.preemption_simulation import AllocationTable, PreemptionSimulation
from tarragon.scheduling.cycle.victims import shortest_sufficient_prefix
from tarragon.scheduling.placement.fit import assign, is_feasible
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import ClusterMemory, ReclaimableReplicas
from tarragon.scheduling.state.node_requests import Amounts, Mask

_TRIED_ONE_BY_ONE = 8
"""Up to this many units, leaving each one out is tried. Of more, only those on unused nodes are left out, and where
GPUs are shared, whole parts of them.
"""
_MAX_PARTS_TRIED, _MIN_PARTS_TRIED = 48, 8
"""Of 64 units of which 4 are needed, all others are left out after 32 tries."""
_NODES_TRIED = 24_000
"""Each try looks at all nodes, and takes about 0.4 ms on 500: fewer are made where there are more nodes."""
_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)

ShrunkGang = tuple[RunningGang, Mapping[Replica, str]]
"""A gang as it is, and the nodes with which it continues."""


def remote_last(gang: RunningGang, demand: Demand) -> list[Replica]:
    """Sort the gang's replicas of this demand so that those to be removed first come last.

    Remote replicas are removed first, then the highest index. A replica is remote if no anchor (parameter server) is on
    its node; index 0 never counts as remote. A gang that restarts to resize has no gaps in its indexes: there only the
    index counts.
    """
    anchors = {node_of(place) for replica, place in gang.nodes.items() if replica.type in gang.anchor_types}
    prefer_local = bool(anchors) and not gang.resizes_by_restart
    ordered = [
        (prefer_local and replica.index > 0 and node_of(place) not in anchors, replica.index, replica)
        for replica, place in gang.nodes.items()
        if replica.type == demand.type
    ]
    return [replica for _, _, replica in sorted(ordered)]


def reclaimable_replicas(gang: RunningGang) -> list[Replica]:
    """List the replicas that the gang can give back, in the order of removal: none of its minimum, index 0, or those
    that decide the job.

    Finished and displaced replicas hold nothing that others could use. A gang that restarts to resize gives back
    nothing: the restart would cost it more than others gain.
    """
    if gang.resizes_by_restart or len(gang.nodes) <= sum(demand.minimum for demand in gang.demands):
        return []
    reclaimable: list[Replica] = []
    for demand in gang.demands:
        if not demand.decides:
            absent = gang.finished | gang.displaced
            present = [replica for replica in remote_last(gang, demand) if replica not in absent]
            removable = [replica for replica in reversed(present) if replica.index > 0]
            reclaimable += removable[: max(0, len(present) - demand.minimum)]
    return reclaimable


class ReclaimablePool:
    """The pool of replicas that could be given back, in a fair order: lowest priority first, then the gang with most
    replicas above its minimum, then the one with the largest part of its maximum, then the youngest, then by name.
    Gangs must be sorted by name.
    """

    def __init__(self, gangs: Sequence[RunningGang], nodes: Inventory, memory: ClusterMemory) -> None:
        self._gangs = list(gangs)
        by_gang = memory.reclaimable.get_all(gangs, partial(_reclaimable, nodes=nodes))
        reclaimable = [(index, replicas) for index, replicas in enumerate(by_gang) if replicas is not None]
        order = np.concatenate([np.zeros((0, 4)), *(replicas.sort_keys for _, replicas in reclaimable)])
        rows = np.concatenate([np.zeros(0, np.int64), *(replicas.rows for _, replicas in reclaimable)])
        freed = np.concatenate(
            [np.zeros((0, len(nodes.resources)), np.int64), *(replicas.freed for _, replicas in reclaimable)]
        )
        owners = np.repeat(
            [index for index, _ in reclaimable], [len(replicas.rows) for _, replicas in reclaimable]
        ).astype(np.int64)
        self._replicas = [replica for _, replicas in reclaimable for replica in replicas.replicas]
        self._index_of = {gangs[index].name: index for index, _ in reclaimable}
        # The sort is stable: equal keys stay in order of gang, then of turn.
        self._units = np.lexsort(order.T[::-1])
        """The index of each unit in `_replicas`, in the order of reclaiming."""
        self._rows, self._freed, self._owners = rows[self._units], freed[self._units], owners[self._units]
        self._priorities = order[self._units, 0]
        self._sum: Amounts | None = None
        """What all units free together, by row and column; None after a change until it is needed."""

    def copy(self) -> ReclaimablePool:
        """Return an independent copy. Arrays are shared, as they are only ever replaced."""
        duplicate: ReclaimablePool = copy(self)
        duplicate._gangs, duplicate._index_of = self._gangs.copy(), self._index_of.copy()
        return duplicate

    def reclaim(
        self, demands: Sequence[Demand], ledger: NodeLedger, below: int | None = None
    ) -> list[ShrunkGang] | None:
        """Reclaim what these demands need to fit the ledger, from gangs below this priority: no more than necessary.
        None if all of it together is too little.
        """
        if self._is_too_little(demands, ledger):
            return None
        useful = self._useful(demands, ledger, below)
        if not len(useful):
            return None
        units = self._sufficient_prefix(useful, demands, ledger)
        if units is None:
            return None
        if len(units) <= _TRIED_ONE_BY_ONE:
            units = self._without_unneeded(units, demands, ledger)
        elif ledger.nodes.layout.vgpus is not None:
            units = self._without_unneeded_parts(units, demands, ledger)
        return self._remove(units)

    def ledger_if_all_reclaimed(self, ledger: NodeLedger) -> NodeLedger:
        """Return the ledger as if everything were reclaimed. For most waiting gangs even that is too little, which the
        capacity index then answers quickly.
        """
        ledger_if_shrunk = ledger.with_released(self._rows, self._freed)
        index = ledger.requests.capacity_index
        index.last_with_reclaimable = ledger_if_shrunk.update_totals(index.last_with_reclaimable)
        return ledger_if_shrunk

    def allocations(self, below: int) -> AllocationTable:
        """What gangs of lower priority could give back, by index."""
        is_lower = self._priorities < below
        return AllocationTable(len(self._gangs), self._owners[is_lower], self._rows[is_lower], self._freed[is_lower])

    def exclude(self, names: Collection[str]) -> None:
        """Exclude these gangs, as they end or something else is decided about them."""
        forgotten = [self._index_of.pop(name) for name in names if name in self._index_of]
        if forgotten:
            self._retain(~np.isin(self._owners, forgotten))

    def _retain(self, kept: Mask) -> None:
        self._units, self._owners = self._units[kept], self._owners[kept]
        self._rows, self._priorities, self._freed = self._rows[kept], self._priorities[kept], self._freed[kept]
        self._sum = None

    def _is_too_little(self, demands: Sequence[Demand], ledger: NodeLedger) -> bool:
        """Whether all of it is too little for any one demand: a quick check that is enough for most gangs."""
        if self._sum is None:
            self._sum = np.zeros_like(ledger.table)
            for column in range(self._sum.shape[1]):
                np.add.at(self._sum[:, column], self._rows, self._freed[:, column])
        free = ledger.settled(ledger.table + self._sum)
        requests = [(ledger.requests.of(demand), demand.minimum) for demand in demands if demand.minimum]
        requests.sort(key=lambda each: -each[0].weight)
        return any(int(request.room(free, request.mask).clip(max=count).sum()) < count for request, count in requests)

    def _useful(self, demands: Sequence[Demand], ledger: NodeLedger, below: int | None) -> Amounts:
        """The units on nodes that are eligible for one of the demands, if they hold any resource that it requests."""
        useful = np.zeros(len(self._units), np.bool_)
        if not len(useful):
            return np.flatnonzero(useful)
        for request in [ledger.requests.of(demand) for demand in demands if demand.minimum]:
            useful |= request.mask[self._rows] & (self._freed[:, request.reads] > 0).any(axis=1)
        return np.flatnonzero(useful if below is None else useful & (self._priorities < below))

    def _ledger_without(self, units: Amounts, ledger: NodeLedger) -> NodeLedger:
        return ledger.with_released(self._rows[units], self._freed[units])

    def _simulation(self, units: Amounts, demands: Sequence[Demand], ledger: NodeLedger) -> PreemptionSimulation:
        """A simulation in which each of these units is an owner of its own."""
        count = len(units)
        return PreemptionSimulation(
            demands, ledger, AllocationTable(count, np.arange(count), self._rows[units], self._freed[units])
        )

    def _suffices(self, units: Amounts, demands: Sequence[Demand], ledger: NodeLedger) -> bool:
        return is_feasible(demands, self._ledger_without(units, ledger))

    def _sufficient_prefix(self, units: Amounts, demands: Sequence[Demand], ledger: NodeLedger) -> Amounts | None:
        """The shortest prefix that suffices, minus units that are not needed on the nodes used. What the simulation
        rejects never suffices.
        """
        length = self._simulation(units, demands, ledger).sufficient_prefix_length(np.arange(len(units)))
        if length is None:
            return None
        length = max(1, length)
        used = self._used_units(units[:length], demands, ledger)
        if used is not None:
            return used
        if not self._suffices(units, demands, ledger):
            return None
        size = shortest_sufficient_prefix(units, length + 1, partial(self._suffices, demands=demands, ledger=ledger))
        return self._used_units(units[:size], demands, ledger)

    def _used_units(self, units: Amounts, demands: Sequence[Demand], ledger: NodeLedger) -> Amounts | None:
        """Keep the units without which a node used by the demands would have too little; None if the demands do not
        fit.
        """
        after = self._ledger_without(units, ledger)
        before = after.table.copy(order="K")
        if assign(demands, after) is None:
            return None
        if ledger.nodes.layout.vgpus is not None:
            # What one column lacks says little where replicas hold parts of GPUs. All that is given back on the nodes
            # used may be needed: which part of it is tried afterwards.
            used_rows = (before != after.table).any(axis=1)
            on_used_rows: Amounts = units[used_rows[self._rows[units]]]
            return on_used_rows
        kept: list[int] = []
        for row in (before != after.table).any(axis=1).nonzero()[0]:
            used = before[row] - after.table[row]
            missing = np.where(used > 0, used - ledger.table[row], 0)
            if (missing > 0).any():
                on_row = units[self._rows[units] == row]
                kept += [int(on_row[position]) for position in _covering(self._freed[on_row], missing)]
        return np.array(sorted(kept), np.int64)

    def _without_unneeded(self, units: Amounts, demands: Sequence[Demand], ledger: NodeLedger) -> Amounts:
        """Leave out units that are not needed, trying the last ones of the order first."""
        simulation, left = self._simulation(units, demands, ledger), np.arange(len(units))
        for at in left[::-1]:
            rest = left[left != at]
            if len(rest) and simulation.seems_sufficient(rest) and self._suffices(units[rest], demands, ledger):
                left = rest
        return units[left]

    def _without_unneeded_parts(self, units: Amounts, demands: Sequence[Demand], ledger: NodeLedger) -> Amounts:
        """Leave out units that are not needed, in halves, quarters and so on: usually few of many are needed."""
        simulation, left = self._simulation(units, demands, ledger), np.arange(len(units))
        parts = np.array_split(left, 2)
        tries = min(_MAX_PARTS_TRIED, max(_MIN_PARTS_TRIED, _NODES_TRIED // len(ledger.nodes.names)))
        for _ in range(tries):
            if not parts:
                break
            part = parts.pop()
            rest = np.setdiff1d(left, part)
            if len(rest) and simulation.seems_sufficient(rest) and self._suffices(units[rest], demands, ledger):
                left = rest
            elif len(part) > 1:
                parts += np.array_split(part, 2)
        return units[left]

    def _remove(self, units: Amounts) -> list[ShrunkGang]:
        """Remove these units from the pool, and return what their gangs continue with."""
        removed: dict[int, set[Replica]] = {}
        for unit in units:
            removed.setdefault(int(self._owners[unit]), set()).add(self._replicas[self._units[unit]])
        is_left = np.ones(len(self._units), np.bool_)
        is_left[units] = False
        self._retain(is_left)
        resizes: list[ShrunkGang] = []
        for index, replicas in sorted(removed.items()):
            gang = self._gangs[index]
            kept = {replica: node for replica, node in gang.nodes.items() if replica not in replicas}
            self._gangs[index] = replace(gang, nodes=kept)
            resizes.append((gang, kept))
        return resizes


def _reclaimable(gang: RunningGang, nodes: Inventory) -> ReclaimableReplicas | None:
    """The gang's reclaimable replicas; None if there are none."""
    replicas = reclaimable_replicas(gang)
    turns = [turn for turn, replica in enumerate(replicas) if gang.nodes[replica] in nodes.row_of]
    if not turns:
        return None
    demands = {demand.type: demand for demand in gang.demands}
    largest = sum(max(demand.maximum, demand.requested) for demand in gang.demands)
    age = -(gang.admitted_at or _LONG_AGO).timestamp()
    size, count = len(gang.nodes), len(replicas)
    return ReclaimableReplicas(
        [replicas[turn] for turn in turns],
        np.array([nodes.row_of[gang.nodes[replicas[turn]]] for turn in turns], np.int64),
        np.array([_held_at(gang.nodes[replicas[turn]], demands[replicas[turn].type], nodes) for turn in turns]),
        np.array([(gang.priority, turn - count, (turn - size) / largest, age) for turn in turns], np.float64),
    )


def _held_at(place: str, demand: Demand, nodes: Inventory) -> Amounts:
    return nodes.known_row(nodes.amounts_at(place, demand))


def _covering(freed: Amounts, missing: Amounts) -> list[int]:
    """The first rows whose sum covers what is missing, minus those that are not needed."""
    chosen, surplus = list(range(len(freed))), freed.sum(axis=0) - missing
    for position in reversed(range(len(freed))):
        if (surplus >= freed[position]).all():
            surplus = surplus - freed[position]
            chosen.remove(position)
    return chosen
