from __future__ import annotations

import datetime as dt

import pytest

from tarragon.base.time_arithmetic import MAX_TIME, MIN_TIME, add_seconds

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_a_time_is_so_many_seconds_later_or_earlier() -> None:
    assert add_seconds(NOON, 90) == NOON + dt.timedelta(seconds=90)
    assert add_seconds(NOON, -0.5) == NOON - dt.timedelta(seconds=0.5)


@pytest.mark.parametrize("seconds", [2**63 - 1, 1e300, float("inf"), 3e11])
def test_the_calendar_has_a_first_and_a_last_moment(seconds: float) -> None:
    assert add_seconds(NOON, seconds) == MAX_TIME
    assert add_seconds(NOON, -seconds) == MIN_TIME
    assert add_seconds(MAX_TIME, 1) == MAX_TIME
    assert add_seconds(MIN_TIME, -1) == MIN_TIME
