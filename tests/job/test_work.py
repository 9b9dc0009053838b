"""The record of a job's work: it is compact, bounded, and written and read without loss."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.job.progress import MAX_SECONDS as MAX_REMAINING
from tarragon.job.progress import Progress
from tarragon.job.work import (
    MAX_SIZES,
    JobWork,
    Milestone,
    SizeRecord,
    Stretch,
    begun,
    decode_work,
    encode_work,
    ended,
    reported,
    sizes_at,
    with_few_sizes,
    with_measured_remaining,
)
from tarragon.kube.codec import encode

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
MOMENTS = st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - hypothesis adds it
AMOUNTS = st.integers(0, 10**6).map(float)
SIZES = st.dictionaries(st.integers(1, 10_000), st.builds(SizeRecord, AMOUNTS, AMOUNTS), max_size=20)
COUNTS = st.integers(0, 10**9)
WORKS = st.builds(
    JobWork,
    kind=st.text("0123456789abcdef", max_size=16),
    sizes=SIZES.map(with_few_sizes),
    unit=st.sampled_from(["", "steps", "percent"]),
    believed_until=st.none() | AMOUNTS,
    needed=st.none() | AMOUNTS,
    restart_seconds=st.none() | AMOUNTS,
    idle_since=st.none() | MOMENTS,
    stretch=st.none()
    | st.builds(
        Stretch,
        size=st.integers(1, 10_000),
        asked_at=MOMENTS,
        began_at=MOMENTS,
        done=COUNTS,
        first=st.none() | st.builds(Milestone, MOMENTS, COUNTS),
    ),
)
REPORTS = st.none() | st.builds(Progress, updated_at=MOMENTS, done=st.none() | COUNTS, total=st.just(10**9))


@given(WORKS)
def test_what_is_written_is_read(work: JobWork) -> None:
    assert decode_work(json.loads(encode(encode_work(work)))) == work


def test_a_job_of_which_nothing_is_known_takes_no_room() -> None:
    assert encode_work(JobWork()) == {}


def test_the_record_of_a_long_life_takes_few_bytes() -> None:
    work = JobWork(kind="0123456789abcdef", unit="steps", believed_until=123456.0, restart_seconds=12.5)
    for size in range(1, 100):
        at = NOW + dt.timedelta(hours=size)
        work = begun(work, size, at, at, None)
        work = ended(work, at + dt.timedelta(seconds=1234.5), None)

    assert len(work.sizes) == MAX_SIZES
    assert len(encode(encode_work(work))) < 500


@given(SIZES)
def test_no_time_and_no_work_is_lost_when_sizes_become_one(sizes: dict[int, SizeRecord]) -> None:
    few = with_few_sizes(sizes)

    assert len(few) <= MAX_SIZES
    assert sum(each.seconds for each in few.values()) == pytest.approx(
        sum(each.seconds for each in sizes.values()), rel=1e-6
    )
    assert sum(each.units for each in few.values()) == pytest.approx(
        sum(each.units for each in sizes.values()), rel=1e-6
    )


def test_the_sizes_that_are_nearest_to_each_other_become_one() -> None:
    sizes = {size: SizeRecord(100.0) for size in (1, 2, 4, 8, 16, 32, 64, 65, 128)}

    assert set(with_few_sizes(sizes)) == {1, 2, 4, 8, 16, 32, 64, 128}


def measured(done: int, seconds: float, said: int | None = None) -> Progress:
    """What is known of the remaining time of a program that had done 100 of 1,000 steps so many seconds before."""
    first = Stretch(size=1, asked_at=NOW, began_at=NOW, first=Milestone(NOW, 100))
    now = NOW + dt.timedelta(seconds=seconds)
    found = Progress(updated_at=now, done=done, total=1000, remaining_seconds=said)
    return with_measured_remaining(found, JobWork(unit="steps", stretch=first))


def test_the_remaining_time_that_a_program_does_not_tell_follows_from_its_rate() -> None:
    assert measured(200, 50).remaining_seconds == 400
    assert measured(200, 50, said=7).remaining_seconds == 7
    assert measured(200, 5).remaining_seconds is None
    assert measured(100, 50).remaining_seconds is None
    assert measured(101, 10**9).remaining_seconds == MAX_REMAINING


@given(WORKS, MOMENTS, MOMENTS, REPORTS, REPORTS)
def test_whatever_happens_no_time_is_taken_away(
    work: JobWork, first: dt.datetime, second: dt.datetime, report: Progress | None, later: Progress | None
) -> None:
    lived = ended(reported(ended(reported(work, report), first, later), later), second, later)
    lived = ended(begun(lived, 3, first, second, report), first, later)

    assert lived.stretch is None
    assert sum(each.seconds for each in lived.sizes.values()) >= sum(each.seconds for each in work.sizes.values()) * (
        1 - 1e-4
    )
    assert all(each.seconds >= 0 and each.units >= 0 for each in sizes_at(lived, second, later).values())
    assert lived.restart_seconds is None or lived.restart_seconds >= 0
