"""Packs a gang of a given size onto nodes: one if it takes the whole gang, else the fewest that a quick
search finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.gpu_shares import claims_of
from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.placement.node_choice import RowShare, choose_rows, nearest
from tarragon.scheduling.state.inventory import ScoreArray
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.node_requests import UNLIMITED_ROOM, Amounts, Mask, NodeRequest

Packing = dict[int, list[int]]
"""By row, in the order in which nodes were opened: the number of replicas of each demand."""


_MAX_COMPARED_NODES = 16
"""Gangs on more nodes than this are packed by one heuristic only."""
_MAX_CANDIDATES = 64
"""The number of nodes that are compared with each other."""
_TOLERANCE = 1 - 1e-9
"""A relative tolerance: sums of bytes over thousands of nodes exceed 63 bits, and sums of floats are at least this
exact.
"""


@dataclass(frozen=True, slots=True)
class ReplicaBatch:
    """A number of replicas of one demand."""

    demand: Demand
    request: NodeRequest
    count: int
    position: int
    """The index of the demand in its gang."""
    weight: float
    """The part of the largest node that one replica takes; a thousand times that if it requests accelerators."""


def replica_batches(demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger) -> list[ReplicaBatch]:
    """The demands with any replicas, the scarcest first: they decide where the others can be. Those that need an unused
    GPU come before all who could join them there.
    """
    wants: list[ReplicaBatch] = []
    for position, (demand, count) in enumerate(zip(demands, counts, strict=True)):
        if count:
            request = ledger.requests.of(demand)
            wants.append(ReplicaBatch(demand, request, count, position, request.weight))
    return sorted(wants, key=lambda want: (-claims_of(want.request.share), -want.weight, want.position))


def pack(demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger) -> Packing | None:
    """Find nodes for the gang without taking them."""
    wants = replica_batches(demands, counts, ledger)
    if not has_enough_in_total(wants, ledger):
        return None
    row = _one_row(wants, ledger, ()) if wants else None
    if row is not None:
        return {row: list(counts)}
    packing = _scarcest_first(wants, ledger, len(demands))
    if len(wants) <= 1 or (packing is not None and not _may_be_fewer(wants, ledger, packing)):
        return packing
    other = _most_at_once(wants, ledger, len(demands), len(ledger.nodes) + 1 if packing is None else len(packing))
    return other or packing or _side_by_side(wants, ledger, len(demands))


def take_packing(
    demands: Sequence[Demand], packing: Packing, ledger: NodeLedger
) -> dict[tuple[int, int], Sequence[str]] | None:
    """Take a packing, and return the places by row and position; None, with the ledger unchanged, if the GPUs cannot be
    divided like this after all.

    On each node the scarcest demand chooses its GPUs first, as while packing. Where topology constraints had another
    order, that one is tried as well.
    """
    scarcest = replica_batches(demands, [1] * len(demands), ledger)
    vgpus = ledger.nodes.layout.vgpus
    places: dict[tuple[int, int], Sequence[str]] = {}
    rows: dict[int, list[int]] = {}
    for row, counts in packing.items():
        for order in (scarcest, sorted(scarcest, key=lambda want: want.position)):
            requests = [(want.position, want.request, counts[want.position]) for want in order]
            free: list[int] = ledger.table[row].tolist()
            found = {
                position: ledger.places_on(row, request.take_from(free, count, ledger.part_worth), request, count)
                for position, request, count in requests
            }
            is_whole = all(len(found[position]) == count for position, _, count in requests)
            if is_whole and (vgpus is None or vgpus.free_gpus_in(free) >= 0):
                rows[row] = free
                places |= {(row, position): there for position, there in found.items()}
                break
        else:
            return None
    ledger.replace_rows(rows)
    return places


def can_pack(demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger) -> bool:
    """Whether `pack` would find nodes."""
    if _is_plenty(demands, counts, ledger):
        return True
    wants = replica_batches(demands, counts, ledger)
    if not _has_enough_for_each(wants, ledger):
        return False
    if len(wants) <= 1 or _is_room_beside(wants, ledger) or _side_by_side(wants, ledger, len(demands)):
        return True
    if not _may_hold_all(wants, ledger):
        return False
    if len(_takers(wants, ledger)) or _scarcest_first(wants, ledger, len(demands)):
        return True
    return _most_at_once(wants, ledger, len(demands), len(ledger.nodes) + 1) is not None


def _is_plenty(demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger) -> bool:
    """Whether there is known to be so much that each demand has room however the others are placed: each of their
    replicas takes at most one node from it. No more may be free on a node than its capacity.
    """
    total = sum(counts)
    for demand, count in zip(demands, counts, strict=True):
        request = ledger.requests.of(demand)
        if count and not ledger.is_known_to_have(request, count + (total - count) * request.most_on_empty_node):
            return False
    return True


def has_enough_in_total(wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> bool:
    """Whether there is enough in total, and for each demand by itself: a quick check that most waiting gangs fail."""
    return _has_enough_for_each(wants, ledger) and (len(wants) <= 1 or _may_hold_all(wants, ledger))


def _has_enough_for_each(wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> bool:
    for want in wants:
        if ledger.is_known_to_lack(want.request, want.count):
            return False
    for want in wants:
        if ledger.is_known_to_have(want.request, want.count):
            continue
        available = int(np.minimum(ledger.room(want.request), want.count).sum())
        if available < want.count:
            ledger.record_shortage(want.request, available)
            return False
    return True


def _may_hold_all(wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> bool:
    by_mask: dict[int, tuple[NodeRequest, Amounts]] = {}
    for want in wants:
        number, amounts = want.request.mask_number, want.request.row * want.count
        by_mask[number] = want.request, by_mask[number][1] + amounts if number in by_mask else amounts
    return all(ledger.may_have_total(amounts, request) for request, amounts in by_mask.values())


def _needed_columns(wants: Sequence[ReplicaBatch]) -> list[tuple[int, int]]:
    """Sum what is needed by column, accelerators first, as few nodes have any left. Sums are capped to 63 bits."""
    needed: Counter[int] = Counter()
    for want in wants:
        for column, amount in want.request.columns:
            needed[column] += amount * want.count
    return [(column, min(amount, int(UNLIMITED_ROOM))) for column, amount in needed.items()]


def _may_be_fewer(wants: Sequence[ReplicaBatch], ledger: NodeLedger, packing: Packing) -> bool:
    """Whether fewer nodes might do: not if the scarcest demand, or one resource, needs this many by itself. With many
    nodes one more matters little, and one node alone was tried before.
    """
    fewer = len(packing) - 1
    if not 1 < fewer < _MAX_COMPARED_NODES or len(packing) == sum(
        given[wants[0].position] > 0 for given in packing.values()
    ):
        return False
    free = ledger.table[_useful_rows(wants, ledger)]
    most = np.sort(free.clip(min=0), axis=0)[len(free) - fewer :].sum(axis=0, dtype=np.float64)
    return all(most[column] >= amount * _TOLERANCE for column, amount in _needed_columns(wants))


def _useful_rows(wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> Amounts:
    """The rows that take any of these replicas: few of thousands if little is left."""
    takes = ledger.room(wants[0].request) > 0
    for want in wants[1:]:
        takes |= ledger.room(want.request) > 0
    return takes.nonzero()[0]


def _one_row(wants: Sequence[ReplicaBatch], ledger: NodeLedger, opened: Sequence[int]) -> int | None:
    """Find the best fit among rows that take everything: highest score, then nearest, then least left for others."""
    rows = _takers(wants, ledger)
    if opened:
        rows = _without(rows, opened, ledger)
    return _best_of(rows, wants, ledger, opened) if len(rows) else None


def _best_of(rows: Amounts, wants: Sequence[ReplicaBatch], ledger: NodeLedger, opened: Sequence[int]) -> int:
    scores = _scores(wants, ledger)
    if scores is not None:
        rows = rows[scores[rows] == scores[rows].max()]
    return ledger.tightest(nearest(rows, ledger, opened), 1, [(want.request, want.count) for want in wants])[0]


def _takers(wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> Amounts:
    first, *others = wants
    rows = np.flatnonzero(ledger.room(first.request) >= first.count)
    for want in others:
        if len(rows) and want.request.mask_number != first.request.mask_number:
            rows = rows[want.request.mask[rows]]
    if len(rows) and others:
        for column, amount in _needed_columns(wants):
            rows = rows[ledger.table[rows, column] >= amount]
        if len(rows) and _compete_for_gpus(wants):
            rows = rows[_taken_by(wants, ledger, rows)[1]]
    return rows


def _compete_for_gpus(wants: Sequence[ReplicaBatch]) -> bool:
    """Whether what one demand takes of GPUs changes how many replicas of another one fit: more than the sums of columns
    say.
    """
    return any(want.request.share for want in wants) and sum(want.request.vgpus is not None for want in wants) > 1


def _scores(wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> Amounts | None:
    """The preference score of each row for all replicas together; None without preferences."""
    liked = [ledger.nodes.preference_scores(want.demand) * want.count for want in wants if want.demand.node_scores]
    return np.sum(liked, axis=0) if liked else None


def _scarcest_first(wants: Sequence[ReplicaBatch], ledger: NodeLedger, demands: int) -> Packing | None:
    """Let the scarcest demand take as few nodes as it can, fill what is left there with the others, and repeat."""
    packing: Packing = {}
    rest = list(wants)
    while rest:
        shares = _shares(rest, ledger, list(packing))
        if not shares:
            return None
        for row, given in shares:
            packing[row] = [0] * demands
            packing[row][rest[0].position] = given
        rest = _fill(packing, [row for row, _ in shares], wants, ledger)
    return packing


def _shares(rest: Sequence[ReplicaBatch], ledger: NodeLedger, opened: Sequence[int]) -> list[RowShare]:
    scarcest = rest[0]
    if opened and len(rest) > 1 and (row := _one_row(rest, ledger, opened)) is not None:
        return [(row, scarcest.count)]
    return choose_rows(scarcest.demand, scarcest.count, ledger, opened)


def _is_room_beside(wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> bool:
    """Whether the second of two demands has room on nodes that the first one cannot use: as for parameter servers on
    nodes without accelerators. That is quickly told for most gangs.
    """
    first, *others = wants
    return len(others) == 1 and ledger.room_beside(others[0].request, first.request) >= others[0].count


def _side_by_side(wants: Sequence[ReplicaBatch], ledger: NodeLedger, demands: int) -> Packing | None:
    """Give each demand nodes of its own, whichever come first; the demand with room on the fewest nodes chooses first.
    That wastes nodes, but is quick where there are many.
    """
    packing: Packing = {}
    rooms = [(want, np.minimum(ledger.room(want.request), want.count)) for want in wants]
    for want, room in sorted(rooms, key=lambda each: np.count_nonzero(each[1])):
        room[list(packing)] = 0
        rows = np.flatnonzero(room)
        totals = np.cumsum(room[rows])
        if not len(rows) or totals[-1] < want.count:
            return None
        enough = int(np.searchsorted(totals, want.count)) + 1
        missing = want.count
        for row in rows[:enough].tolist():
            packing[row] = [0] * demands
            packing[row][want.position] = min(missing, int(room[row]))
            missing -= packing[row][want.position]
    return packing


def _fill(
    packing: Packing, rows: Sequence[int], wants: Sequence[ReplicaBatch], ledger: NodeLedger
) -> list[ReplicaBatch]:
    """Give these rows all that they take, and return what is left without nodes, the scarcest first."""
    lacking = [(want, want.count - sum(given[want.position] for given in packing.values())) for want in wants]
    lacking = [(want, count) for want, count in lacking if count]
    free = {row: _left_on(row, packing[row], wants, ledger) for row in rows} if lacking else {}
    rest: list[ReplicaBatch] = []
    for want, missing in lacking:
        count = missing
        for row in rows:
            if count and want.request.mask[row]:
                taken = min(count, want.request.times_in(free[row]))
                packing[row][want.position] += taken
                want.request.take_from(free[row], taken, ledger.part_worth)
                count -= taken
        if count:
            rest.append(ReplicaBatch(want.demand, want.request, count, want.position, want.weight))
    return rest


def _left_on(row: int, given: Sequence[int], wants: Sequence[ReplicaBatch], ledger: NodeLedger) -> list[int]:
    """What is left on the row, by column."""
    left: list[int] = ledger.table[row].tolist()
    for want in wants:
        want.request.take_from(left, given[want.position], ledger.part_worth)
    return left


def _most_at_once(wants: Sequence[ReplicaBatch], ledger: NodeLedger, demands: int, too_many: int) -> Packing | None:
    """Take the node that takes most of what is left of all demands, until one takes the rest. None if that takes
    `too_many` nodes.
    """
    packing: Packing = {}
    rest = list(wants)
    rows = _useful_rows(wants, ledger)
    is_candidate = _promising_rows(wants, ledger, rows)
    while rest:
        score, takes_all = _taken_by(rest, ledger, rows)
        if takes_all.any():
            row = _best_of(rows[takes_all], rest, ledger, list(packing))
        else:
            score[~is_candidate] = 0
            if len(packing) + 2 >= too_many or not score.any():  # this one, and one for the rest
                return None
            best = nearest(rows[score == score.max()], ledger, list(packing))
            row = ledger.tightest(best, 1, [(want.request, 1) for want in rest])[0]
        packing[row] = [0] * demands
        rest = _fill(packing, [row], wants, ledger)
        others = rows != row
        rows, is_candidate = rows[others], is_candidate[others]
    return packing


def _promising_rows(wants: Sequence[ReplicaBatch], ledger: NodeLedger, rows: Amounts) -> Mask:
    """Select the rows that would take most if demands did not compete for the same resources."""
    if len(rows) <= _MAX_CANDIDATES:
        return np.ones(len(rows), np.bool_)
    score = np.zeros(len(rows), np.float64)
    for want in wants:
        score += np.minimum(ledger.room(want.request)[rows], want.count) * want.weight
    is_promising = np.zeros(len(rows), np.bool_)
    is_promising[np.argsort(-score, kind="stable")[:_MAX_CANDIDATES]] = True
    return is_promising


def _taken_by(wants: Sequence[ReplicaBatch], ledger: NodeLedger, rows: Amounts) -> tuple[ScoreArray, Mask]:
    """What each of these rows would take (in units of the largest node), and whether that is everything."""
    free: Amounts = ledger.table[rows]
    taken, is_all = np.zeros(len(rows), np.float64), np.ones(len(rows), np.bool_)
    for index, want in enumerate(wants):
        count = np.minimum(want.request.room_without_preselection(free, want.request.mask[rows]), want.count)
        taken += count * want.weight
        is_all &= count == want.count
        others = wants[index + 1 :]
        if any(other.request.vgpus is not None for other in others):
            free = want.request.taken_from(free, count, ledger.part_worth)
        elif others:
            free = want.request.taken_beside_gpus(free, count)
    return taken, is_all


def _without(rows: Amounts, opened: Sequence[int], ledger: NodeLedger) -> Amounts:
    is_closed = np.ones(len(ledger.nodes), np.bool_)
    is_closed[list(opened)] = False
    return rows[is_closed[rows]]
