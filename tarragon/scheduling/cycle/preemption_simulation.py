"""Simulates whether a gang would have enough resources if certain owners gave back what they hold.

The question is asked a hundred times to select victims, so only nodes on which something would be freed are examined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.node_requests import Amounts, Mask, NodeRequest


@dataclass(frozen=True, slots=True, eq=False)
class AllocationTable:
    """What owners hold or could give back: a row for each piece (what one owner holds on one node), as there may be
    thousands.
    """

    owner_count: int
    """The number of owners. They are identified by numbers from 0 on."""
    owners: Amounts
    rows: Amounts
    """The inventory row of each piece's node."""
    amounts: Amounts

    def owned_by(self, owners: Sequence[int] | Amounts) -> Mask:
        """A mask of the pieces that belong to these owners."""
        chosen = np.zeros(self.owner_count, np.bool_)
        chosen[owners] = True
        return chosen[self.owners]

    def select(self, pieces: Mask | Amounts) -> AllocationTable:
        return AllocationTable(self.owner_count, self.owners[pieces], self.rows[pieces], self.amounts[pieces])

    def minus(self, others: AllocationTable) -> AllocationTable:
        """Return what the owners still hold after they have given back the others' pieces."""
        return AllocationTable(
            self.owner_count,
            np.concatenate([self.owners, others.owners]),
            np.concatenate([self.rows, others.rows]),
            np.concatenate([self.amounts, -others.amounts]),
        )

    def ledger_without(self, owners: Sequence[int] | Amounts, ledger: NodeLedger) -> NodeLedger:
        """Return the ledger as it would be if these owners had given back what they hold."""
        pieces = self.owned_by(owners)
        return ledger.with_released(self.rows[pieces], self.amounts[pieces])


@dataclass(frozen=True, slots=True)
class _Shortfall:
    request: NodeRequest
    count: int
    is_eligible: Mask
    """A mask of the eligible nodes among those examined."""
    rows: Amounts
    """The same as indexes."""
    elsewhere: int
    """The number of replicas for which there is room on all other nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unmet:
    """A demand with the room for it before anything is given back."""

    request: NodeRequest
    count: int
    room: Amounts
    available: int

    @classmethod
    def of(cls, demand: Demand, ledger: NodeLedger) -> _Unmet:
        request = ledger.requests.of(demand)
        room = np.minimum(ledger.room(request), demand.minimum)
        return cls(request, demand.minimum, room, int(room.sum()))

    def on(self, rows: Amounts) -> _Shortfall:
        is_eligible = self.request.mask[rows]
        return _Shortfall(
            self.request,
            self.count,
            is_eligible,
            np.flatnonzero(is_eligible),
            self.available - int(self.room[rows].sum()),
        )


class PreemptionSimulation:
    """A simulation for these demands on a ledger that must not change meanwhile. Giving back never reduces what is
    free, so only demands without enough room yet are examined.
    """

    def __init__(self, demands: Sequence[Demand], ledger: NodeLedger, holdings: AllocationTable) -> None:
        self._ledger = ledger
        unmet = [_Unmet.of(demand, ledger) for demand in demands if demand.minimum]
        unmet = sorted((each for each in unmet if each.available < each.count), key=lambda each: -each.request.weight)
        is_eligible = np.zeros(len(ledger.nodes), np.bool_)
        for each in unmet:
            is_eligible |= each.request.mask
        self._held = holdings.select(is_eligible[holdings.rows])
        is_examined = np.zeros(len(is_eligible), np.bool_)
        is_examined[self._held.rows] = True
        self._rows = rows = np.flatnonzero(is_examined)
        self._positions = (np.cumsum(is_examined) - 1)[self._held.rows]
        columns = sorted({column for each in unmet for column in each.request.reads})
        self._columns = [(column, ledger.table[rows, column], self._held.amounts[:, column]) for column in columns]
        self._shortfalls = [each.on(rows) for each in unmet]
        """The scarcest first, as it is the most likely to fail."""

    def seems_sufficient(self, owners: Sequence[int] | Amounts) -> bool:
        """Whether each demand by itself would have room for its minimum if these owners gave back what they hold. This
        is necessary, not sufficient.
        """
        return self._suffices(self._free_after(np.flatnonzero(self._held.owned_by(owners))))

    def sufficient_prefix_length(self, owners: Amounts) -> int | None:
        """The length of the shortest prefix of the owners for which `seems_sufficient` holds; None if all of them are
        too few.
        """
        pieces = np.flatnonzero(self._held.owned_by(owners))
        free = self._free_after(pieces)
        return self._sequence(owners, self._useful(pieces, free)).beginning() if self._suffices(free) else None

    def needed_owners(self, owners: Amounts) -> list[int]:
        """Leave out owners that are not needed, trying the last ones first; those that remain are enough together.

        There is room for more replicas on few nodes only. Owners that hold nothing there can be left out at once, and
        for the others plain numbers are faster than arrays.
        """
        pieces = np.flatnonzero(self._held.owned_by(owners))
        free = self._free_after(pieces)
        release = _Release(
            self._shortfalls, [_room(each, free) + each.elsewhere - each.count for each in self._shortfalls]
        )
        release.add(self._held.select(self._useful(pieces, free)), self._ledger)
        return [owner for owner in owners[::-1].tolist() if release.is_needed(owner)][::-1]

    def _free_after(self, pieces: Amounts) -> dict[int, Amounts]:
        """What is free on each examined node if these pieces are given back, by column."""
        positions = self._positions[pieces]
        free: dict[int, Amounts] = {}
        for column, free_now, amounts in self._columns:
            free[column] = free_now.copy()
            np.add.at(free[column], positions, amounts[pieces])
        return free

    def _suffices(self, free: Mapping[int, Amounts]) -> bool:
        return all(_room(each, free) + each.elsewhere >= each.count for each in self._shortfalls)

    def _useful(self, pieces: Amounts, free: Mapping[int, Amounts]) -> Amounts:
        """Keep the pieces on nodes which have room for more replicas with this much free than before."""
        free_before = {column: free_now for column, free_now, _ in self._columns}
        has_gain = np.zeros(len(self._rows), np.bool_)
        for each in self._shortfalls:
            has_gain |= each.is_eligible & (_times(each, free) > _times(each, free_before))
        useful: Amounts = pieces[has_gain[self._positions[pieces]]]
        return useful

    def _sequence(self, owners: Amounts, pieces: Amounts) -> _Sequence:
        turn_of = np.zeros(self._held.owner_count, np.int64)
        turn_of[owners] = np.arange(len(owners))
        turns = turn_of[self._held.owners[pieces]]
        order = np.argsort(self._positions[pieces] * len(owners) + turns, kind="stable")
        pieces = pieces[order]
        columns = {column: (free_now, amounts[pieces]) for column, free_now, amounts in self._columns}
        return _Sequence(self._shortfalls, turns[order], self._positions[pieces], columns, len(owners))


@dataclass(slots=True)
class _Release:
    """What is free if all owners give back, and the room for replicas beyond what is wanted."""

    _shortfalls: Sequence[_Shortfall]
    _surplus: list[int]
    """The surplus of each demand."""
    _free: dict[int, list[int]] = field(default_factory=dict)
    """Free amounts by row, then column."""
    _held: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    """Held amounts by owner, row and column."""

    def add(self, held: AllocationTable, ledger: NodeLedger) -> None:
        pieces = zip(held.owners.tolist(), held.rows.tolist(), held.amounts.tolist(), strict=True)
        for owner, row, amounts in pieces:
            rows = self._held.setdefault(owner, {})
            rows[row] = _add(rows[row], amounts) if row in rows else amounts
            self._free[row] = _add(self._free.get(row) or ledger.table[row].tolist(), amounts)

    def is_needed(self, owner: int) -> bool:
        """Whether the demands do not fit without this owner. If they do, it keeps what it holds from then on."""
        held = self._held.get(owner)
        if held is None:
            return False
        free = {row: _add(self._free[row], [-amount for amount in amounts]) for row, amounts in held.items()}
        surplus = [
            room - sum(_times_on(row, self._free[row], each) - _times_on(row, free[row], each) for row in free)
            for each, room in zip(self._shortfalls, self._surplus, strict=True)
        ]
        if any(room < 0 for room in surplus):
            return True
        self._free.update(free)
        self._surplus = surplus
        return False


def _add(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [first + second for first, second in zip(left, right, strict=True)]


def _times_on(row: int, free: Sequence[int], shortfall: _Shortfall) -> int:
    return min(shortfall.count, shortfall.request.times_in(free)) if shortfall.request.mask[row] else 0


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Owners that give back one after the other. Cumulative sums give the room after each of them for all at once."""

    _shortfalls: Sequence[_Shortfall]
    _turns: Amounts
    """The turn of each piece. Pieces are sorted by node, and on one node by turn."""
    _positions: Amounts
    _columns: dict[int, tuple[Amounts, Amounts]]
    """What is free on each node, and what each piece adds to it."""
    _number: int
    """The number of owners."""

    def beginning(self) -> int | None:
        """The least number of turns after which each demand has room; None if all turns are too few."""
        is_first = np.ones(len(self._positions), np.bool_)
        is_first[1:] = self._positions[1:] != self._positions[:-1]
        first = np.flatnonzero(is_first)
        lengths = np.diff(np.append(first, len(is_first)))
        before: dict[int, Amounts] = {}
        after: dict[int, Amounts] = {}
        for column, (free_now, amounts) in self._columns.items():
            sums = np.cumsum(amounts)
            before[column] = free_now
            after[column] = sums - np.repeat((sums - amounts)[first] - free_now[self._positions[first]], lengths)
        least = 0
        for shortfall in self._shortfalls:
            missing = shortfall.count - shortfall.elsewhere - _room(shortfall, before)
            if missing > 0:
                gained = np.cumsum(self._gains(shortfall, before, after, first))
                if not len(gained) or gained[-1] < missing:
                    return None
                least = max(least, int(np.argmax(gained >= missing)) + 1)
        return least

    def _gains(
        self, shortfall: _Shortfall, before: Mapping[int, Amounts], after: Mapping[int, Amounts], first: Amounts
    ) -> Amounts:
        """The number of additional replicas for which each turn makes room."""
        room = _times(shortfall, after)
        gains = room.copy()
        gains[1:] -= room[:-1]
        begun = self._positions[first]
        gains[first] = room[first] - _times(shortfall, {column: free_now[begun] for column, free_now in before.items()})
        gains[~shortfall.is_eligible[self._positions]] = 0
        gained: Amounts = np.bincount(self._turns, gains, self._number).astype(np.int64)
        return gained


def _room(shortfall: _Shortfall, free: Mapping[int, Amounts]) -> int:
    """The number of replicas for which the examined nodes have room."""
    request = shortfall.request
    if not request.is_possible or not request.reads:
        return shortfall.count * len(shortfall.rows) if request.is_possible else 0
    return int(_times(shortfall, {column: free[column][shortfall.rows] for column in request.reads}).sum())


def _times(shortfall: _Shortfall, free: Mapping[int, Amounts]) -> Amounts:
    """The number of replicas that fit each of these nodes, at most as many as are wanted."""
    return shortfall.request.room_of(free.__getitem__).clip(0, shortfall.count)
