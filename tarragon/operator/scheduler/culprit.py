"""Finding the one gang that waits because of which a policy fails altogether: that must not stop all others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tarragon.scheduling.api.snapshot import Gang, Snapshot
from tarragon.scheduling.cycle.decision_validation import Checked

Ask = Callable[[Snapshot], Checked]
"""The policy; raises whatever a bug in it raises."""


@dataclass(frozen=True, slots=True)
class Culprit:
    gang: Gang
    error: Exception
    """What the policy raises with it."""
    otherwise: Checked
    """What is decided without it, of some of the others at least."""


def culprit(ask: Ask, snapshot: Snapshot, error: Exception) -> Culprit | None:
    """Of a snapshot that the policy fails on with this error. None where it fails even as if nobody waited.

    It is asked once, and then as often as the gangs that wait can be halved. Always true below: with `away` left out
    it fails, and once `suspects` are left out too it does not.
    """
    away: set[str] = set()
    suspects = snapshot.waiting
    if not suspects:
        return None
    try:
        otherwise = ask(without({gang.name for gang in suspects}, snapshot))
    except Exception:  # noqa: BLE001 - whatever a policy raises: that is what is looked for
        return None
    while len(suspects) > 1:
        half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
        names = {gang.name for gang in half}
        try:
            otherwise = ask(without(away | names, snapshot))
        except Exception as another:  # noqa: BLE001 - as above
            error, suspects = another, rest
            away |= names
        else:
            suspects = half
    return Culprit(suspects[0], error, otherwise)


def without(names: Collection[str], snapshot: Snapshot) -> Snapshot:
    """As if these did not wait."""
    if not names:
        return snapshot
    return replace(snapshot, waiting=[gang for gang in snapshot.waiting if gang.name not in names])
