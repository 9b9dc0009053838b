"""What was observed of a job's work: the service that it received at each size, and how far it came in that time.

The status keeps it, so that it outlives resizes, evictions and the operator. Writes are few: while all replicas of a
job run, only the beginning of that stretch is on record. The rest follows from the time and from the job's progress,
and is added up when the stretch ends, with a write that is made anyway.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from tarragon.job.progress import MAX_COUNT, Progress, Unit
from tarragon.job.progress import MAX_SECONDS as MAX_REMAINING_SECONDS
from tarragon.job.replica_ranges import MAX_REPLICAS
from tarragon.kube.codec import format_micro_time, parse_time
from tarragon.kube.meta import Json

T = TypeVar("T")

MAX_SIZES = 8
"""The most sizes that are on record for one job. Beyond, the two that are nearest to each other become one."""
MIN_RATE_SECONDS = 30.0
"""A rate counts if it was measured between two reports that are so far apart."""
NEW_FIRST_REPORT = dt.timedelta(minutes=5)
"""A program that counts anew is measured from then on, but not more often than this: each time is a write."""
_FROM_ROUGH_TO_FINE = ("", Unit.PERCENT.value, Unit.EPOCHS.value, Unit.STEPS.value)
MAX_SECONDS = 1e9
MAX_KIND_LENGTH = 32


@dataclass(frozen=True, slots=True)
class SizeRecord:
    """What was observed while a job had one size: for how long all its replicas ran, and how far it came."""

    seconds: float = 0.0
    """Without the time that the job took to start or to resize."""
    units: float = 0.0
    """The units of work (steps) that were done in that time; 0 if the job reports nothing."""

    def extended(self, seconds: float, rate: float | None) -> SizeRecord:
        """Return the record with more time, at a measured rate. A rate stands for all time in which none was known."""
        before = self.units / self.seconds if self.units and self.seconds else rate or 0.0
        units = before * self.seconds + (before if rate is None else rate) * seconds
        return SizeRecord(_rounded(min(self.seconds + seconds, MAX_SECONDS)), _rounded(units))


@dataclass(frozen=True, slots=True)
class Milestone:
    """A report: how much was done at that time."""

    at: dt.datetime
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time in which all replicas of a job run, at one size."""

    size: int
    asked_at: dt.datetime
    """When the job was admitted or resized, or its replicas were lost."""
    began_at: dt.datetime
    """When all replicas ran."""
    done: int = 0
    """What was reported as done before."""
    first: Milestone | None = None
    """The first report of the stretch. Rates are measured from it on, because a program has to warm up."""

    def seconds(self, now: dt.datetime) -> float:
        """Return its length; 0 if the clock went back."""
        return _seconds(self.began_at, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """The record of a job's work, as in `status.tarragon.work`."""

    kind: str = ""
    """A hash of what the job runs. Jobs with equal ones learn from each other."""
    sizes: Mapping[int, SizeRecord] = field(default_factory=dict)
    """The stretches that have ended, by number of replicas."""
    unit: str = ""
    """What the units are; empty while nothing was reported."""
    believed_until: float | None = None
    """The service up to which the job's reports are believed: see `scheduling/estimates/estimate.py`."""
    needed: float | None = None
    """The service that the job had received when it succeeded, in device-seconds."""
    restart_seconds: float | None = None
    """How long the job took to make progress after its last start or resize."""
    idle_since: dt.datetime | None = None
    """When the last stretch ended."""
    stretch: Stretch | None = None
    """The stretch that goes on; None while some replica does not run."""


def begun(work: JobWork, size: int, asked_at: dt.datetime, now: dt.datetime, progress: Progress | None) -> JobWork:
    """Return the record of a job whose replicas all run from now on."""
    asked_at = asked_at if work.idle_since is None else max(asked_at, work.idle_since)
    asked_at = min(asked_at, now)
    done = (progress.done if progress is not None else None) or 0
    return replace(
        work,
        stretch=Stretch(size=size, asked_at=asked_at, began_at=now, done=done),
        restart_seconds=_rounded(_seconds(asked_at, now)),
    )


def reported(work: JobWork, progress: Progress | None) -> JobWork:
    """Return the record with the first report of a stretch, or that of a program that has begun to count anew."""
    stretch = work.stretch
    if stretch is None or progress is None or not _is_of(progress, stretch) or not _begins(work, stretch, progress):
        return work
    unit = progress.unit.value
    sizes = work.sizes if work.unit in {"", unit} else _without_units(work.sizes)
    first = Milestone(progress.updated_at, progress.done or 0)
    return replace(work, unit=unit, sizes=sizes, stretch=replace(stretch, first=first))


def counts_finer(unit: str, before: str) -> bool:
    """Whether a unit says more than the one before. Many programs begin with a percentage or an epoch, then count."""
    return _FROM_ROUGH_TO_FINE.index(unit) > _FROM_ROUGH_TO_FINE.index(before)


def ended(work: JobWork, now: dt.datetime, progress: Progress | None) -> JobWork:
    """Return the record of a job of which some replica runs no longer, or whose size has changed."""
    stretch = work.stretch
    if stretch is None:
        return work
    return replace(
        work,
        sizes=with_few_sizes(sizes_at(work, now, progress)),
        restart_seconds=restart_seconds(work, progress),
        idle_since=max(now, stretch.began_at),
        stretch=None,
    )


def sizes_at(work: JobWork, now: dt.datetime, progress: Progress | None) -> Mapping[int, SizeRecord]:
    """Return what was observed at each size, including the stretch that goes on."""
    stretch = work.stretch
    if stretch is None:
        return work.sizes
    before = work.sizes.get(stretch.size, SizeRecord())
    return {**work.sizes, stretch.size: before.extended(stretch.seconds(now), _rate(work, progress))}


def restart_seconds(work: JobWork, progress: Progress | None) -> float | None:
    """Return how long the job made no progress after its last start or resize.

    The moment at which a program went on lies before its first report: its rate says how long before.
    """
    stretch, rate = work.stretch, _rate(work, progress)
    if stretch is None or stretch.first is None or rate is None:
        return work.restart_seconds
    before_report = max(0, stretch.first.done - stretch.done) / rate
    idle = _seconds(stretch.asked_at, stretch.first.at) - before_report
    return _rounded(max(idle, _seconds(stretch.asked_at, stretch.began_at)))


def with_measured_remaining(progress: Progress, work: JobWork) -> Progress:
    """Return the progress with the remaining time by the measured rate, if the program has not told its own estimate.

    A program that only prints its steps tells none.
    """
    rate = _rate(work, progress)
    if progress.remaining_seconds is not None or rate is None or progress.total is None or progress.done is None:
        return progress
    left = (progress.total - progress.done) / rate
    return replace(progress, remaining_seconds=round(min(left, MAX_REMAINING_SECONDS)))


def with_few_sizes(sizes: Mapping[int, SizeRecord]) -> Mapping[int, SizeRecord]:
    """Return at most MAX_SIZES records: two sizes that are near each other become the one that was observed longer."""
    few = dict(sorted(sizes.items()))
    while len(few) > MAX_SIZES:
        pair = min(pairwise(sorted(few)), key=lambda pair: pair[1] / pair[0])
        kept, other = sorted(pair, key=lambda size: -few[size].seconds)
        left, right = few[kept], few.pop(other)
        few[kept] = SizeRecord(_rounded(left.seconds + right.seconds), _rounded(left.units + right.units))
    return few


def _is_of(progress: Progress, stretch: Stretch) -> bool:
    """Whether something was done in the stretch. Before its first step a program warms up, or reads a checkpoint."""
    return bool(progress.done) and not progress.is_of_earlier_pod and progress.updated_at >= stretch.began_at


def _begins(work: JobWork, stretch: Stretch, progress: Progress) -> bool:
    """Whether rates are measured from this report on. What was measured in a finer unit is not given up at once."""
    unit, first = progress.unit.value, stretch.first
    if unit != work.unit and counts_finer(unit, work.unit):
        return True
    since = stretch.began_at if first is None else first.at
    has_changed = unit != work.unit or (first is not None and (progress.done or 0) < first.done)
    return progress.updated_at - since >= NEW_FIRST_REPORT if has_changed else first is None


def _rate(work: JobWork, progress: Progress | None) -> float | None:
    """Return the units per second since the first report of the stretch; None while that says nothing."""
    first = None if work.stretch is None else work.stretch.first
    if first is None or progress is None or progress.done is None or progress.unit.value != work.unit:
        return None
    seconds = _seconds(first.at, progress.updated_at)
    done = progress.done - first.done
    return done / seconds if done > 0 and seconds >= MIN_RATE_SECONDS else None


def _without_units(sizes: Mapping[int, SizeRecord]) -> Mapping[int, SizeRecord]:
    return {size: SizeRecord(record.seconds) for size, record in sizes.items()}


def _seconds(since: dt.datetime, until: dt.datetime) -> float:
    return max(0.0, (until - since).total_seconds())


def _rounded(number: float) -> float:
    """Round to milliseconds, or to nine digits: more than can be measured, and short in a status."""
    return float(f"{number:.9g}")


# ------------------------------------------------------------------------------------------------------------- storing


def encode_work(work: JobWork) -> dict[str, Json]:
    """Encode `status.tarragon.work`; empty if nothing is known."""
    fields: dict[str, Json] = {
        "kind": work.kind,
        "unit": work.unit,
        "sizes": {str(size): [record.seconds, record.units] for size, record in work.sizes.items()},
        "believed": work.believed_until,
        "needed": work.needed,
        "restart": work.restart_seconds,
        "idle": None if work.idle_since is None else format_micro_time(work.idle_since),
        "running": None if work.stretch is None else _stretch_fields(work.stretch),
    }
    return {name: value for name, value in fields.items() if value is not None and value not in ("", {})}


def _stretch_fields(stretch: Stretch) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "size": stretch.size,
        "asked": format_micro_time(stretch.asked_at),
        "began": format_micro_time(stretch.began_at),
        "done": stretch.done,
    }
    if stretch.first is not None:
        fields["first"] = {"at": format_micro_time(stretch.first.at), "done": stretch.first.done}
    return fields


def decode_work(found: Json) -> JobWork:
    """Decode `status.tarragon.work`.

    Raises ValueError, TypeError, KeyError, OverflowError or AttributeError if it is invalid: users can edit a status.
    """
    kind, unit = str(found.get("kind", "")), found.get("unit", "")
    if len(kind) > MAX_KIND_LENGTH:
        raise ValueError(f"kind has more than {MAX_KIND_LENGTH} characters")
    sizes = {_size(int(size)): _read_size(values) for size, values in found.get("sizes", {}).items()}
    return JobWork(
        kind=kind,
        unit=Unit(unit).value if unit else "",
        sizes=with_few_sizes(sizes),
        believed_until=_optional(found.get("believed"), _amount),
        needed=_optional(found.get("needed"), _amount),
        restart_seconds=_optional(found.get("restart"), _amount),
        idle_since=_optional(found.get("idle"), parse_time),
        stretch=_optional(found.get("running"), _read_stretch),
    )


def _read_size(values: Json) -> SizeRecord:
    seconds, units = values
    return SizeRecord(min(_amount(seconds), MAX_SECONDS), _amount(units))


def _read_stretch(found: Json) -> Stretch:
    return Stretch(
        size=_size(found["size"]),
        asked_at=parse_time(found["asked"]),
        began_at=parse_time(found["began"]),
        done=_count(found.get("done", 0)),
        first=_optional(found.get("first"), lambda first: Milestone(parse_time(first["at"]), _count(first["done"]))),
    )


def _optional(value: Json, read: Callable[[Json], T]) -> T | None:
    return None if value is None else read(value)


def _size(value: Json) -> int:
    size = _count(value)
    if not 1 <= size <= MAX_REPLICAS:
        raise ValueError(f"{size} is not a number of replicas")
    return size


def _count(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{value!r} is not a count")
    return value


def _amount(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT**2:
        raise ValueError(f"{value!r} is not an amount")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite")
    return float(value)
