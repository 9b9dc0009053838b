"""Nodes for a gang of a given size: one if one takes it whole, else the fewest that a quick search finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.placement.node_choice import Share, choose, nearest, tightest
from tarragon.scheduling.state.inventory import Scores
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import PLENTY, Amounts, Ask, Mask

Packing = dict[int, list[int]]
"""By row, in the order in which they were opened: how many it gets of each demand."""


_FEW = 16
"""A gang on more nodes than this is not looked at twice."""
_WEIGHED = 64
"""So many nodes are compared one with another."""
_NEARLY = 1 - 1e-9
"""Sums of bytes over thousands of nodes need more than 63 bits; those of floats are this exact at least."""


@dataclass(frozen=True, slots=True)
class Want:
    """So many replicas of one demand."""

    demand: Demand
    ask: Ask
    count: int
    place: int
    """Among the gang's demands."""
    weight: float
    """How much of the roomiest node one replica takes; a thousand times that if it asks for accelerators."""


def wants_of(demands: Sequence[Demand], counts: Sequence[int], ledger: Ledger) -> list[Want]:
    """Those of which there are any, the scarcest first: they decide where the others can be."""
    wants: list[Want] = []
    for place, (demand, count) in enumerate(zip(demands, counts, strict=True)):
        if count:
            ask = ledger.nodes.ask(demand)
            wants.append(Want(demand, ask, count, place, ask.weight))
    return sorted(wants, key=lambda want: (-want.weight, want.place))


def pack(demands: Sequence[Demand], counts: Sequence[int], ledger: Ledger) -> Packing | None:
    """Nothing is taken yet."""
    wants = wants_of(demands, counts, ledger)
    if not has_as_much(wants, ledger):
        return None
    whole = _one_row(wants, ledger, ()) if wants else None
    if whole is not None:
        return {whole: list(counts)}
    led = _led(wants, ledger, len(demands))
    if len(wants) <= 1 or (led is not None and not _may_be_fewer(wants, ledger, led)):
        return led
    together = _together(wants, ledger, len(demands), len(ledger.nodes) + 1 if led is None else len(led))
    return led if together is None else together


def has_room(demands: Sequence[Demand], counts: Sequence[int], ledger: Ledger) -> bool:
    """Whether `pack` would find places."""
    wants = wants_of(demands, counts, ledger)
    if not has_as_much(wants, ledger):
        return False
    if len(wants) <= 1 or len(_takers(wants, ledger)):
        return True
    led = _led(wants, ledger, len(demands))
    return led is not None or _together(wants, ledger, len(demands), len(ledger.nodes) + 1) is not None


def has_as_much(wants: Sequence[Want], ledger: Ledger) -> bool:
    """Whether there is as much in all, and each demand for itself has room: the quick answer to most that wait."""
    for want in wants:
        if ledger.lacks(want.ask, want.count):
            return False
    for want in wants:
        there = int(np.minimum(ledger.room(want.demand), want.count).sum())
        if there < want.count:
            ledger.falls_short(want.ask, there)
            return False
    return len(wants) <= 1 or _may_hold_all(wants, ledger)


def _may_hold_all(wants: Sequence[Want], ledger: Ledger) -> bool:
    needed: dict[int, tuple[Mask, Amounts]] = {}
    for want in wants:
        mask, amounts = want.ask.mask, want.ask.row * want.count
        needed[id(mask)] = mask, needed[id(mask)][1] + amounts if id(mask) in needed else amounts
    return all(ledger.may_hold(amounts, mask) for mask, amounts in needed.values())


def _needed(wants: Sequence[Want]) -> list[tuple[int, int]]:
    """By column, accelerators first: few nodes have any left. Of what is too much for 63 bits, more than any has."""
    needed: Counter[int] = Counter()
    for want in wants:
        for column, amount in want.ask.columns:
            needed[column] += amount * want.count
    return [(column, min(amount, int(PLENTY))) for column, amount in needed.items()]


def _may_be_fewer(wants: Sequence[Want], ledger: Ledger, led: Packing) -> bool:
    """Whether neither the scarcest demand alone nor any resource takes so many nodes. Of many, one more is little; and
    with fewer than two one node would take it whole.
    """
    fewer = len(led) - 1
    if not 1 < fewer < _FEW or len(led) == sum(given[wants[0].place] > 0 for given in led.values()):
        return False
    free = ledger.table[_useful(wants, ledger)]
    most = np.sort(free.clip(min=0), axis=0)[len(free) - fewer :].sum(axis=0, dtype=np.float64)
    return all(most[column] >= amount * _NEARLY for column, amount in _needed(wants))


def _useful(wants: Sequence[Want], ledger: Ledger) -> Amounts:
    """The rows that take any of these: few of thousands do, where little is left."""
    takes = ledger.room(wants[0].demand) > 0
    for want in wants[1:]:
        takes |= ledger.room(want.demand) > 0
    return takes.nonzero()[0]


def _one_row(wants: Sequence[Want], ledger: Ledger, opened: Sequence[int]) -> int | None:
    """Best fit: of the rows that take all, the best liked, the nearest, the one with least left for others."""
    rows = _takers(wants, ledger)
    if opened:
        rows = _without(rows, opened, ledger)
    return _best_of(rows, wants, ledger, opened) if len(rows) else None


def _best_of(rows: Amounts, wants: Sequence[Want], ledger: Ledger, opened: Sequence[int]) -> int:
    liking = _liking(wants, ledger)
    if liking is not None:
        rows = rows[liking[rows] == liking[rows].max()]
    return tightest(nearest(rows, ledger, opened), 1, ledger.roominess())[0]


def _takers(wants: Sequence[Want], ledger: Ledger) -> Amounts:
    first, *others = wants
    rows = np.flatnonzero(ledger.room(first.demand) >= first.count)
    for want in others:
        if len(rows) and want.ask.mask is not first.ask.mask:
            rows = rows[want.ask.mask[rows]]
    if len(rows) and others:
        for column, amount in _needed(wants):
            rows = rows[ledger.table[rows, column] >= amount]
    return rows


def _liking(wants: Sequence[Want], ledger: Ledger) -> Amounts | None:
    """How much each row is liked by all replicas together; None when they do not care."""
    liked = [ledger.nodes.liking(want.demand) * want.count for want in wants if want.demand.preference]
    return np.sum(liked, axis=0) if liked else None


def _led(wants: Sequence[Want], ledger: Ledger, demands: int) -> Packing | None:
    """The scarcest demand takes the fewest nodes that it can, the others fill what is left of these; and so on."""
    packing: Packing = {}
    rest = list(wants)
    while rest:
        shares = _shares(rest, ledger, list(packing))
        if not shares:
            return None
        for row, given in shares:
            packing[row] = [0] * demands
            packing[row][rest[0].place] = given
        rest = _filled(packing, [row for row, _ in shares], wants, ledger)
    return packing


def _shares(rest: Sequence[Want], ledger: Ledger, opened: Sequence[int]) -> list[Share]:
    lead = rest[0]
    if opened and len(rest) > 1 and (whole := _one_row(rest, ledger, opened)) is not None:
        return [(whole, lead.count)]
    return choose(lead.demand, lead.count, ledger, opened)


def _filled(packing: Packing, rows: Sequence[int], wants: Sequence[Want], ledger: Ledger) -> list[Want]:
    """What has no place yet, after these rows have been given all that they take; the scarcest first."""
    lacking = [(want, want.count - sum(given[want.place] for given in packing.values())) for want in wants]
    lacking = [(want, count) for want, count in lacking if count]
    free = {row: _left_on(row, packing[row], wants, ledger) for row in rows} if lacking else {}
    rest: list[Want] = []
    for want, missing in lacking:
        count = missing
        for row in rows:
            if count and want.ask.mask[row]:
                taken = min(count, want.ask.times(free[row]))
                packing[row][want.place] += taken
                for column, amount in want.ask.columns:
                    free[row][column] -= taken * amount
                count -= taken
        if count:
            rest.append(Want(want.demand, want.ask, count, want.place, want.weight))
    return rest


def _left_on(row: int, given: Sequence[int], wants: Sequence[Want], ledger: Ledger) -> list[int]:
    """By column."""
    left: list[int] = ledger.table[row].tolist()
    for want in wants:
        for column, amount in want.ask.columns:
            left[column] -= given[want.place] * amount
    return left


def _together(wants: Sequence[Want], ledger: Ledger, demands: int, too_many: int) -> Packing | None:
    """Node by node the one that takes most of what is left of all demands, until one takes the rest. None if that takes
    too many nodes.
    """
    packing: Packing = {}
    rest = list(wants)
    rows = _useful(wants, ledger)
    is_weighed = _promising(wants, ledger, rows)
    while rest:
        score, takes_all = _taken(rest, ledger, rows)
        if takes_all.any():
            row = _best_of(rows[takes_all], rest, ledger, list(packing))
        else:
            score[~is_weighed] = 0
            if len(packing) + 2 >= too_many or not score.any():  # this one, and one for the rest
                return None
            row = tightest(nearest(rows[score == score.max()], ledger, list(packing)), 1, ledger.roominess())[0]
        packing[row] = [0] * demands
        rest = _filled(packing, [row], wants, ledger)
        others = rows != row
        rows, is_weighed = rows[others], is_weighed[others]
    return packing


def _promising(wants: Sequence[Want], ledger: Ledger, rows: Amounts) -> Mask:
    """Those of the rows that would take most, if what one demand takes were not lost for the others."""
    if len(rows) <= _WEIGHED:
        return np.ones(len(rows), np.bool_)
    score = np.zeros(len(rows), np.float64)
    for want in wants:
        score += np.minimum(ledger.room(want.demand)[rows], want.count) * want.weight
    most = np.zeros(len(rows), np.bool_)
    most[np.argsort(-score, kind="stable")[:_WEIGHED]] = True
    return most


def _taken(wants: Sequence[Want], ledger: Ledger, rows: Amounts) -> tuple[Scores, Mask]:
    """What each of these rows would take, in roomiest nodes, and whether that is all."""
    free: Amounts = ledger.table[rows]
    taken, is_all = np.zeros(len(rows), np.float64), np.ones(len(rows), np.bool_)
    for want in wants:
        count = np.minimum(want.ask.room_of_few(free, want.ask.mask[rows]), want.count)
        free -= count[:, None] * want.ask.row
        taken += count * want.weight
        is_all &= count == want.count
    return taken, is_all


def _without(rows: Amounts, opened: Sequence[int], ledger: Ledger) -> Amounts:
    keeps = np.ones(len(ledger.nodes), np.bool_)
    keeps[list(opened)] = False
    return rows[keeps[rows]]
