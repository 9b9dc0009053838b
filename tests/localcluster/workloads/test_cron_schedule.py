from __future__ import annotations

import datetime as dt
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.kube.meta import ObjectMeta
from tarragon.localcluster.api.cron_schedule import Schedule
from tarragon.localcluster.controllers.workloads import cron_plan
from tarragon.localcluster.controllers.workloads.model import CronJob, CronJobSpec

NOON = dt.datetime(2026, 2, 27, 12, 0, tzinfo=dt.UTC)  # a Friday


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("* * * * *", "2026-02-27T12:01"),
        ("*/15 * * * *", "2026-02-27T12:15"),
        ("0 9-17/4 * * *", "2026-02-27T13:00"),
        ("30 8 * * mon,wed", "2026-03-02T08:30"),
        ("0 0 1 * *", "2026-03-01T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 13 * 5", "2026-03-06T00:00"),  # of the month or of the week
        ("0 0 * jan sun", "2027-01-03T00:00"),
        ("0 0 ? * 0", "2026-03-01T00:00"),
        ("@hourly", "2026-02-27T13:00"),
        ("@every 1h30m", "2026-02-27T13:30"),
    ],
)
def test_the_next_moment_of_a_schedule(text: str, wanted: str) -> None:
    assert Schedule.parse(text).after(NOON) == dt.datetime.fromisoformat(wanted).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "@often", "a * * * *"],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Schedule.parse(text)


def test_a_moment_that_never_comes_is_none() -> None:
    assert Schedule.parse("0 0 31 2 *").after(NOON) is None


def test_an_hour_that_the_clocks_skip_is_left_out() -> None:
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    night = dt.datetime(2026, 3, 28, 12, 0, tzinfo=dt.UTC)

    found = Schedule.parse("30 2 * * *").after(night, berlin)

    assert found == dt.datetime(2026, 3, 30, 0, 30, tzinfo=dt.UTC)


@given(st.integers(0, 10**9), st.sampled_from(["*/7 * * * *", "5 4 * * 1-5"]))
def test_the_next_moment_is_later_and_the_first(seconds: int, text: str) -> None:
    schedule = Schedule.parse(text)
    aware = NOON + dt.timedelta(seconds=seconds)

    found = schedule.after(aware)

    assert found is not None
    assert found > aware
    assert schedule.after(found - dt.timedelta(seconds=1)) == found


def test_a_start_that_is_far_away_is_not_slept_through_with_the_machine() -> None:
    cron_job = CronJob(metadata=ObjectMeta(name="c", creation_timestamp=NOON), spec=CronJobSpec(schedule="0 0 * * *"))
    seconds = cron_plan.plan(cron_job, [], NOON).again

    assert seconds is not None
    assert seconds <= cron_plan.LONGEST_SECONDS
