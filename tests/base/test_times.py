from __future__ import annotations

import datetime as dt

import pytest

from tarragon.base.times import FIRST, LAST, later

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_a_time_is_so_many_seconds_later_or_earlier() -> None:
    assert later(NOON, 90) == NOON + dt.timedelta(seconds=90)
    assert later(NOON, -0.5) == NOON - dt.timedelta(seconds=0.5)


@pytest.mark.parametrize("seconds", [2**63 - 1, 1e300, float("inf"), 3e11])
def test_the_calendar_has_a_first_and_a_last_moment(seconds: float) -> None:
    assert later(NOON, seconds) == LAST
    assert later(NOON, -seconds) == FIRST
    assert later(LAST, 1) == LAST
    assert later(FIRST, -1) == FIRST
