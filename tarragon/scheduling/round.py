"""One round as it goes on: what is left on the nodes, what is kept for whom, and what was decided already.

All policies are made of these pieces; what differs between them is who may go before whom.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from tarragon.base.resources import Resources
from tarragon.job.model import Replica
from tarragon.scheduling import waits
from tarragon.scheduling.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_AWAY,
    QUOTA_EXCEEDED,
    RESOURCES_RELEASING,
    AboutGang,
    Evict,
    Place,
    Resize,
    Wait,
)
from tarragon.scheduling.fit import Placement, could_fit, place
from tarragon.scheduling.inventory import Inventory
from tarragon.scheduling.ledger import Ledger
from tarragon.scheduling.needed import Holders
from tarragon.scheduling.shares import Shares
from tarragon.scheduling.snapshot import Demand, Gang, RunningGang, Snapshot

Shape = Hashable


def shape_of(demands: Sequence[Demand]) -> Shape:
    """Equal for gangs that any nodes answer alike."""
    return tuple(demand.shape for demand in demands)


class Round:
    """`free` is what can be had now, less what is kept for somebody; `soon` has besides what is about to be free."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes = Inventory.of(snapshot.nodes)
        self.free = Ledger.of_free(self.nodes)
        self.soon = Ledger.of_free_soon(self.nodes)
        self.shares = Shares(snapshot)
        self.decisions: list[AboutGang] = []
        self.changed: set[str] = set()
        """Gangs that run and of which something is decided."""
        self._open: Ledger | None = None
        self._holders: Holders | None = None
        self._everything = Ledger.of_capacity(self.nodes)
        self._with_away: Ledger | None = None
        self._is_releasing = bool(self.nodes.releasing.any())
        self._never: dict[Shape, tuple[str, str] | None] = {}
        self._smallest: dict[Shape, Sequence[Demand]] = {}
        self._refused: dict[Shape, tuple[str, str]] = {}
        self._not_soon: set[Shape] = set()

    def add(self, decision: AboutGang) -> None:
        self.decisions.append(decision)

    def smallest(self, gang: Gang) -> Sequence[Demand]:
        """What it needs at least."""
        shape = shape_of(gang.demands)
        if shape not in self._smallest:
            self._smallest[shape] = [replace(demand, wish=demand.minimum, maximum=0) for demand in gang.demands]
        return self._smallest[shape]

    def hopeless(self, gang: Gang) -> Wait | None:
        """Why it could not start now whoever went before it: the cluster, its nodes, its quota."""
        shape = shape_of(gang.demands)
        if shape not in self._never:
            self._never[shape] = self._why_never(gang)
        why = self._never[shape]
        if why is not None:
            return Wait(gang.name, *why)
        if self.shares.allowed(gang.queue, gang.demands) is None:
            held, quota = self.shares.held(gang.queue), self.shares.quota(gang.queue)
            return Wait(gang.name, QUOTA_EXCEEDED, waits.over_quota(gang, held, quota))
        return None

    def started(self, gang: Gang) -> Place | None:
        """As large as it goes on what is free; None when that is too little."""
        demands = self.shares.allowed(gang.queue, gang.demands)
        if demands is None or shape_of(gang.demands) in self._refused:
            return None
        nodes = place(demands, self.free)
        if nodes is None:
            return None
        self.taken(gang, nodes)
        return Place(gang.name, nodes)

    def promised(self, gang: Gang) -> Wait | None:
        """It starts once those have left who are leaving: its places are kept. None if that is not enough for it."""
        shape = shape_of(gang.demands)
        if not self._is_releasing or shape in self._not_soon:
            return None
        nodes = place(self.smallest(gang), self.soon)
        if nodes is None:
            self._not_soon.add(shape)
            return None
        self._set_aside(nodes, amounts_of(gang.demands, nodes))
        self.shares.take(gang, nodes)
        return Wait(gang.name, RESOURCES_RELEASING, waits.RELEASING)

    def reserve(self, gang: Gang, nodes: Placement) -> None:
        """What is free there, or will be, is nobody else's."""
        amounts = amounts_of(gang.demands, nodes)
        self._set_aside(nodes, amounts)
        _keep(self.soon, nodes, amounts)
        self.shares.take(gang, nodes)

    def refused(self, gang: Gang) -> Wait:
        """It does not fit: because there is too little, or because what there is is kept for others."""
        shape = shape_of(gang.demands)
        if shape not in self._refused:
            if self._open is not None and could_fit(self.smallest(gang), self._open):
                self._refused[shape] = BEHIND_OTHERS, waits.KEPT
            else:
                ledger = self.free if self._open is None else self._open
                self._refused[shape] = INSUFFICIENT_RESOURCES, waits.short(gang, ledger)
        return Wait(gang.name, *self._refused[shape])

    @property
    def holders(self) -> Holders:
        """By the number in `snapshot.running`. Made when somebody asks."""
        if self._holders is None:
            self._holders = Holders(self.snapshot.running, self.nodes)
        return self._holders

    def resize(self, gang: RunningGang, nodes: Mapping[Replica, str], reason: str) -> None:
        """It goes on with these; what it gives back is free once its pods have ended."""
        self.add(Resize(gang.name, nodes, reason))
        self.changed.add(gang.name)
        gone = gang.nodes.keys() - nodes.keys()
        if gone:
            self._release(gang, {replica: gang.nodes[replica] for replica in gone})

    def evict(self, gang: RunningGang, code: str, message: str) -> None:
        """It gives everything back."""
        self.add(Evict(gang.name, code, message))
        self.changed.add(gang.name)
        self._release(gang, gang.nodes)

    def taken(self, gang: Gang | RunningGang, nodes: Mapping[Replica, str]) -> None:
        """Somebody has got these of what is free."""
        amounts = amounts_of(gang.demands, nodes)
        for ledger in filter(None, (self.soon, self._open)):
            _keep(ledger, nodes, amounts)
        self.shares.take(gang, nodes)

    def moved(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        """What it has held all along, it holds elsewhere."""
        _keep(self.soon, nodes, amounts_of(gang.demands, nodes))

    def _release(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        self._is_releasing = True
        self._not_soon.clear()
        amounts = amounts_of(gang.demands, nodes)
        self.shares.give(gang, nodes.keys() - gang.finished)
        for replica, node in nodes.items():
            if replica not in gang.finished and node in self.nodes.row_of:
                self.soon.give(node, amounts[replica])

    def _set_aside(self, nodes: Mapping[Replica, str], amounts: Mapping[Replica, Resources]) -> None:
        if self._open is None:
            self._open = self.free.copy()
        _keep(self.free, nodes, amounts)

    def _why_never(self, gang: Gang) -> tuple[str, str] | None:
        smallest = self.smallest(gang)
        if could_fit(smallest, self._everything):
            return None
        if self.snapshot.away:
            if self._with_away is None:
                self._with_away = Ledger.of_capacity([*self.snapshot.nodes, *self.snapshot.away])
            if could_fit(smallest, self._with_away):
                return NODES_AWAY, waits.away(gang, self.snapshot)
        return NEVER_FITS, waits.never_fits(gang, self.snapshot)


def amounts_of(demands: Sequence[Demand], nodes: Mapping[Replica, str]) -> dict[Replica, Resources]:
    """What each replica holds where it runs."""
    each = {demand.type: demand.each for demand in demands}
    return {replica: each[replica.type] for replica in nodes}


def _keep(ledger: Ledger, nodes: Mapping[Replica, str], amounts: Mapping[Replica, Resources]) -> None:
    for replica, node in nodes.items():
        ledger.keep(node, amounts[replica])
