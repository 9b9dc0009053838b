"""Finds the one waiting gang that makes a policy raise, so that scheduling can continue without it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tarragon.scheduling.api.snapshot import Snapshot, WaitingGang
from tarragon.scheduling.cycle.decision_validation import ValidatedDecisions

PolicyFunction = Callable[[Snapshot], ValidatedDecisions]
"""Runs the policy on a snapshot; raises whatever a bug in the policy raises."""


@dataclass(frozen=True, slots=True)
class FaultyGang:
    """A gang that makes the policy raise."""

    gang: WaitingGang
    error: Exception
    """What the policy raises when the gang is in the snapshot."""
    decisions_without: ValidatedDecisions
    """Decisions made without the gang; they may cover only some of the other gangs."""


def find_faulty_gang(run_policy: PolicyFunction, snapshot: Snapshot, error: Exception) -> FaultyGang | None:
    """Find the gang that makes the policy raise `error` on this snapshot; None if it raises even with no waiting gangs.

    Bisects the waiting gangs: one run without any of them, then one run per halving. Loop invariant: without
    `excluded` the policy raises; without both `excluded` and `suspects` it does not.
    """
    excluded: set[str] = set()
    suspects = snapshot.waiting
    if not suspects:
        return None
    try:
        decisions = run_policy(without_gangs({gang.name for gang in suspects}, snapshot))
    except Exception:  # noqa: BLE001 - a policy may raise anything; the error is what is being bisected
        return None
    while len(suspects) > 1:
        half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
        names = {gang.name for gang in half}
        try:
            decisions = run_policy(without_gangs(excluded | names, snapshot))
        except Exception as another:  # noqa: BLE001 - as above
            error, suspects = another, rest
            excluded |= names
        else:
            suspects = half
    return FaultyGang(suspects[0], error, decisions)


def without_gangs(names: Collection[str], snapshot: Snapshot) -> Snapshot:
    """The snapshot without the waiting gangs of these names."""
    if not names:
        return snapshot
    return replace(snapshot, waiting=[gang for gang in snapshot.waiting if gang.name not in names])
