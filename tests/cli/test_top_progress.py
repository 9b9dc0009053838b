"""Where the text in top's column of progress comes from."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tarragon.base.clock import FakeClock
from tarragon.cli.top.job_rows import job_row
from tarragon.cli.top.view_builder import ViewBuilder
from tarragon.job.model import Replica
from tarragon.job.progress import Progress, Source
from tests.cli.scenes import at, pod, worker
from tests.cli.test_rows import a_job, going

PRINTED = "step 1201 loss 0.12 accuracy 0.9"
RECORDED = "step 1,200/4,000 (30 %) · loss 0.1"


class Tails:
    """The logs that top has read: every pod has printed the same."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    def lines(self, _: Any) -> list[str]:
        return [*self._lines]


def shown(found: Progress | None, *lines: str, monkeypatch: pytest.MonkeyPatch) -> str:
    leader: tuple[Replica, Any] = (worker(0), pod(worker(0)))
    monkeypatch.setattr("tarragon.cli.top.view_builder.leading_replica", lambda *_: leader)
    target: Any = SimpleNamespace()
    tails: Any = Tails(*lines)
    scene: Any = SimpleNamespace()
    row = job_row(a_job(replace(going(), progress=found)))
    return ViewBuilder(target, "default", tails, FakeClock(at(5))).training_progress(scene, [row])[row.key]


def progress(source: Source) -> Progress:
    return Progress(updated_at=at(0), done=1200, total=4000, metrics={"loss": "0.1"}, source=source)


def test_what_a_program_reports_comes_before_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(progress(Source.REPORT), PRINTED, monkeypatch=monkeypatch) == RECORDED


def test_what_the_operator_has_just_read_of_a_log_is_shown_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(progress(Source.LOG), PRINTED, monkeypatch=monkeypatch) == RECORDED


def test_what_a_program_prints_is_newer_than_what_was_read_of_it_minutes_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = replace(progress(Source.LOG), updated_at=at(-90))

    assert shown(earlier, PRINTED, monkeypatch=monkeypatch).startswith("step 1,201")


def test_what_was_read_before_is_shown_while_the_log_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(progress(Source.LOG), "saving", monkeypatch=monkeypatch) == RECORDED
    assert shown(None, "saving", monkeypatch=monkeypatch) == ""


def test_the_report_of_a_former_pod_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    former = replace(progress(Source.REPORT), is_of_earlier_pod=True)

    assert shown(former, PRINTED, monkeypatch=monkeypatch).startswith("step 1,201")
    assert shown(former, monkeypatch=monkeypatch) == ""
