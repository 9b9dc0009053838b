"""Compares what becomes of a queue with what would become of it otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from tarragon.simulator.what_if.queue_course import GangCourse, QueueCourse

SOON_SECONDS = 3600.0
"""A summary counts the gangs that start within this time."""
MIN_CHANGE_SECONDS = 30.0
"""A start that moves by less has not changed for anybody who waits: starts also depend on when cycles run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What becomes of those gangs that wait in the snapshot. Times are in seconds from then."""

    waiting: int
    started: int
    soon: int
    """How many start within `SOON_SECONDS`."""
    never: int
    """How many can't start, whatever ends. The starts of the others were not found in time."""
    mean_wait: float | None
    """Of those that start."""
    mean_completion: float | None
    """Of all gangs whose ends were found, running ones included."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A gang that waits for another time than before; `seconds` are negative if it starts earlier."""

    name: str
    seconds: float


def summary_of(course: QueueCourse, names: Iterable[str]) -> Summary:
    """Summarize the courses of the gangs with these names: two summaries compare only if they are of the same gangs."""
    gangs = [course.gangs[name] for name in names if name in course.gangs]
    starts = [gang.starts_in for gang in gangs if gang.is_waiting and gang.starts_in is not None]
    ends = [gang.ends_in for gang in gangs if gang.ends_in is not None]
    waiting = sum(gang.is_waiting for gang in gangs)
    return Summary(
        waiting=waiting,
        started=len(starts),
        soon=sum(start <= SOON_SECONDS for start in starts),
        never=0 if course.cut_at is not None else waiting - len(starts),
        mean_wait=fmean(starts) if starts else None,
        mean_completion=fmean(ends) if ends else None,
    )


def start_change(before: GangCourse | None, after: GangCourse) -> float | None:
    """Return by how many seconds the gang starts later than before; None if one of its starts is not known."""
    if before is None or before.starts_in is None or after.starts_in is None:
        return None
    seconds = after.starts_in - before.starts_in
    return seconds if abs(seconds) >= MIN_CHANGE_SECONDS else 0.0


def changed_starts(before: Mapping[str, GangCourse], after: Mapping[str, GangCourse]) -> Iterator[Changed]:
    """Yield the gangs that start at another time than before, in the order of the queue."""
    for name, gang in after.items():
        seconds = start_change(before.get(name), gang)
        if seconds:
            yield Changed(name, seconds)


def is_affected(before: GangCourse | None, after: GangCourse) -> bool:
    """Whether the gang waits, or is another size at some time than the one that it has now."""
    return any(
        gang is not None and (gang.is_waiting or gang.displaced or len(gang.sizes) > 1) for gang in (before, after)
    )
