"""How far a training is by what `run` reads of its log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tarragon.cli.follow.printed_progress import MOST_LINES, PrintedProgress
from tarragon.cli.jobview.progress import Progress
from tarragon.job.log_progress import LogProgress
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress as TrainingProgress
from tarragon.job.progress import Source, progress_text
from tarragon.job.status import JobStatus
from tarragon.job.work import JobWork
from tests.cli.scenes import at, ended, pod, progress, worker

LOGS = Path(__file__).parents[1] / "data/logs/progress"


def running(restarts: int = 0) -> Progress:
    return progress({worker(0): pod(worker(0), restarts=restarts)})


def text(printed: PrintedProgress, seen: Progress) -> str:
    return progress_text(printed.applied_to(seen, JobWork()).training, at(1))


def test_the_lines_of_keras_are_understood_as_the_operator_understands_them() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    for line in (LOGS / "keras-verbose-2.log").read_text().splitlines()[:4]:
        printed.read(worker(0), [line], at(1))

    assert text(printed, running()).startswith("step 20/30 (66 %) · loss ")


def test_a_bar_is_understood_while_its_line_grows() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    printed.read(worker(0), ["Epoch 1/2"], at(1))
    printed.read_unfinished(
        worker(0), "\r1/100 ━ 0s 9ms/step - loss: 0.9000\r37/100 ━━━ 0s 9ms/step - loss: 0.50", at(1)
    )
    assert text(printed, running()).startswith("step 37/200 (18 %)")

    printed.read(worker(0), ["100/100 ━━━━━━━━ 0s 9ms/step - loss: 0.4000", "Epoch 2/2"], at(1))
    assert text(printed, running()) == "step 100/200 (50 %) · loss 0.4"


def test_only_the_replica_that_decides_the_job_says_how_far_it_is() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    printed.read(worker(0), ["step 55 of 4000, loss 0.719"], at(1))
    printed.read(worker(1), ["step 3 of 4000, loss 0.9"], at(1))

    assert text(printed, running()) == "step 55/4,000 (1 %) · loss 0.719"
    assert text(PrintedProgress(None, LogProgress()), running()) == ""


def test_what_the_program_reports_counts_more_than_what_it_prints() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    printed.read(worker(0), ["step 55 of 4000, loss 0.719"], at(1))
    reported = TrainingProgress(updated_at=at(0), done=50, total=4000, pod_uid="u")
    read_before = replace(reported, source=Source.LOG)

    assert text(printed, replace(running(), training=reported)) == "step 50/4,000 (1 %)"
    assert text(printed, replace(running(), training=read_before)) == "step 55/4,000 (1 %) · loss 0.719"


def test_a_container_that_was_restarted_begins_anew() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    printed.read(worker(0), ["step 55 of 4000"], at(1))
    assert text(printed, running()) == "step 55/4,000 (1 %)"

    assert text(printed, running(restarts=1)) == ""
    printed.read(worker(0), ["step 1 of 4000"], at(2))
    assert text(printed, running(restarts=1)) == "step 1/4,000 (0 %)"


def test_a_job_that_does_not_run_keeps_what_is_on_record() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    printed.read(worker(0), ["step 55 of 4000"], at(1))
    suspended = progress({worker(0): pod(worker(0))}, status=JobStatus(phase=Phase.SUSPENDED))

    assert text(printed, suspended) == ""


def test_the_end_of_a_job_shows_nothing_older_than_its_log() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    printed.read(worker(0), ["step 96 of 96, loss 0.521"], at(2))
    on_record = TrainingProgress(updated_at=at(1), done=64, total=96, source=Source.LOG)
    over = progress({worker(0): pod(worker(0), ended(0))}, status=JobStatus(phase=Phase.SUCCEEDED))

    assert text(printed, replace(over, training=on_record)) == "step 96/96 (100 %) · loss 0.521"


def test_of_many_lines_at_once_the_last_ones_are_read() -> None:
    printed = PrintedProgress(worker(0), LogProgress())
    printed.read(worker(0), [f"step {number} of 4000" for number in range(MOST_LINES * 3)], at(1))

    assert text(printed, running()) == f"step {MOST_LINES * 3 - 1}/4,000 (14 %)"
