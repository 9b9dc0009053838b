"""`list --watch --state`: the rows of jobs that enter and leave the states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.cli.jobs.listing import JobTable
from tarragon.cli.jobs.watching import AppendingTable, JobEvent
from tarragon.cli.options.settings import GlobalOptions
from tarragon.client.port import Selector
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tests.cli.scenes import at
from tests.cli.test_rows import a_job, going


def table(*states: str) -> AppendingTable:
    nowhere: Any = None
    wanted = JobTable(
        settings=GlobalOptions(),
        target=nowhere,
        selection=Selector("default"),
        form="table",
        has_header=False,
        states=frozenset(states),
    )
    return AppendingTable(wanted, FakeClock(at(5)))


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.split()[1] for line in capsys.readouterr().out.splitlines()]


def test_a_job_is_shown_when_it_enters_a_state_and_when_it_leaves_it(capsys: pytest.CaptureFixture[str]) -> None:
    output = table("running")
    for status in (JobStatus(phase=Phase.CREATED), going(), JobStatus(phase=Phase.SUCCEEDED)):
        output.change(JobEvent(a_job(status), is_deletion=False))
    output.change(JobEvent(a_job(JobStatus(phase=Phase.SUCCEEDED)), is_deletion=True))

    assert shown(capsys) == ["Running", "Succeeded"]


def test_a_job_that_is_deleted_in_a_state_is_shown_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    output = table("running")
    output.change(JobEvent(a_job(going()), is_deletion=False))
    output.change(JobEvent(a_job(going()), is_deletion=True))

    assert shown(capsys) == ["Running", "Deleted"]


def test_neither_age_nor_duration_is_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    output = table()
    for start in (1, 2, 3):
        output.change(JobEvent(a_job(replace(going(), start_time=at(start))), is_deletion=False))

    assert shown(capsys) == ["Running"]
