from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tarragon.base.clock import FakeClock
from tarragon.cli.follow.progress_output import LineOutput, LiveOutput, OutputStreams
from tarragon.cli.follow.view import ProgressFrame, progress_rows
from tarragon.cli.output.screen import LiveRows
from tarragon.cli.output.style import colored, uncolored, without_colors
from tarragon.cli.output.terminal import Terminal
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress as TrainingProgress
from tarragon.job.status import Admission, JobStatus, Obstacle, WaitReason
from tests.cli.emulator import SIZES, Emulator
from tests.cli.scenes import BEGIN, at, ended, pod, progress, ps, running, waiting, worker


@pytest.fixture
def emulate() -> Iterator[Callable[[int, int], Emulator]]:
    made: list[Emulator] = []

    def make(columns: int, lines: int) -> Emulator:
        made.append(Emulator(columns, lines))
        return made[-1]

    yield make
    for emulator in made:
        emulator.close()


def moving(emulator: Emulator, *, shows_logs: bool = True) -> LiveOutput:
    terminal = Terminal(colors_out=True, colors_err=True, is_live=True, shows_logs=shows_logs)
    out = emulator.stream if shows_logs else io.StringIO()
    return LiveOutput(OutputStreams(out=out, err=emulator.stream, terminal=terminal, now=lambda: at(12.4)))


def said(replica: Replica, *texts: str) -> tuple[Replica, Sequence[tuple[str, str]]]:
    return replica, [("2026-11-21T12:00:00Z", text) for text in texts]


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_the_progress_shows_every_replica_below_the_logs(
    emulate: Callable[[int, int], Emulator], columns: int, lines: int
) -> None:
    terminal = emulate(columns, lines)
    teller = moving(terminal)
    pods = {
        ps(0): pod(ps(0)),
        worker(0): pod(worker(0)),
        worker(1): pod(worker(1), waiting("CrashLoopBackOff"), restarts=1, before=ended(137)),
    }
    teller.show_progress(progress(pods, wished={PS: 1, WORKER: 2}))
    teller.tick()
    teller.show_logs(*said(worker(0), "step 1 loss 0.9", "step 2 loss 0.8"))
    teller.tick()

    assert terminal.rows() == [
        "[worker-0] step 1 loss 0.9",
        "[worker-0] step 2 loss 0.8",
        "digits  Running  12.4 s  2 of 3 replicas running",
        "  ps-0            Running",
        "  worker-0        Running",
        "  worker-1        Restarting, exit code 137, restart 1, CrashLoopBackOff",
    ]


def test_how_far_the_program_says_that_it_is_stands_in_the_first_row(emulate: Callable[[int, int], Emulator]) -> None:
    terminal = emulate(120, 30)
    teller = moving(terminal)
    reported = TrainingProgress(updated_at=at(2.4), done=12, total=40, remaining_seconds=70, metrics={"loss": "0.5"})
    seen = progress({worker(0): pod(worker(0))}, wished={WORKER: 1})
    teller.show_progress(replace(seen, training=reported))
    teller.tick()

    assert terminal.rows()[0] == (
        "digits  Running  12.4 s  1 of 1 replica running  step 12/40 (30 %) · loss 0.5 · 1m left"
    )


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_sixty_four_replicas_fit_and_those_in_trouble_are_named(
    emulate: Callable[[int, int], Emulator], columns: int, lines: int
) -> None:
    terminal = emulate(columns, lines)
    teller = moving(terminal)
    pods = {worker(index): pod(worker(index)) for index in range(62)}
    pods[worker(17)] = pod(worker(17), ended(1))
    teller.show_progress(progress(pods, wished={WORKER: 64}))
    teller.tick()

    assert terminal.rows() == [
        "digits  Running  12.4 s  61 of 64 replicas running",
        "  worker       64    61 Running  2 Waiting  1 Failed",
        "  worker-17       Failed, exit code 1",
    ]


def test_no_row_ever_wraps_and_colors_take_no_room() -> None:
    status = JobStatus(
        admission=Admission(queued_at=BEGIN, wait=WaitReason(code="BehindOthers", message="behind " * 40))
    )
    frame = ProgressFrame(width=40, height=24, now=at(1), tail=["[worker-0] 損失は小さくなっています" * 4])

    rows = progress_rows(progress(status=status), frame, uncolored)

    from rich.cells import cell_len

    assert all(cell_len(row) < 40 for row in rows)
    assert len(progress_rows(progress(status=status), frame, colored)) == len(rows)


def test_drawing_again_and_again_leaves_nothing_behind(emulate: Callable[[int, int], Emulator]) -> None:
    terminal = emulate(80, 24)
    screen = LiveRows(terminal.stream, terminal.stream)
    for number in range(50):
        screen.show([f"row {row} of {number}" for row in range(number % 5)])
        screen.print_above(f"log {number}\n")
    screen.clear()

    assert terminal.rows()[-1] == "log 49"
    assert not any("row" in row for row in terminal.rows())


def test_a_window_that_became_narrow_is_cleaned_up_too(emulate: Callable[[int, int], Emulator]) -> None:
    terminal = emulate(80, 24)
    screen = LiveRows(terminal.stream, terminal.stream)
    screen.show(["x" * 30])
    terminal.rows()
    # A real terminal wraps the row into two now; the emulator cuts it, so the wrapped half is written here.
    terminal.resize(20, 24)
    terminal.stream.write("\n" + "x" * 10)
    screen.clear()

    assert terminal.rows() == [""]


def test_logs_that_go_to_a_file_are_hinted_at_below_the_replicas(emulate: Callable[[int, int], Emulator]) -> None:
    terminal = emulate(80, 24)
    teller = moving(terminal, shows_logs=False)
    teller.show_progress(progress({worker(0): pod(worker(0), running())}))
    teller.show_logs(*said(worker(0), *(f"step {number}" for number in range(9))))
    teller.tick()

    assert terminal.rows()[-5:] == [f"  [worker-0] step {number}" for number in range(4, 9)]


def test_a_note_stays_on_the_screen_above_the_rows(emulate: Callable[[int, int], Emulator]) -> None:
    terminal = emulate(80, 24)
    teller = moving(terminal)
    teller.show_progress(progress({worker(0): pod(worker(0))}))
    teller.tick()
    teller.show_note("the local cluster had ended and was started again")
    teller.close()

    assert terminal.rows() == ["the local cluster had ended and was started again"]


def test_a_program_that_clears_the_screen_clears_nothing(emulate: Callable[[int, int], Emulator]) -> None:
    terminal = emulate(80, 24)
    teller = moving(terminal)
    teller.show_logs(*said(worker(0), "before"))
    teller.show_logs(*said(worker(0), "\x1b[2J\x1b[Hafter"))
    teller.tick()

    assert terminal.rows() == ["[worker-0] before", "[worker-0] after"]


def test_where_nothing_can_move_every_change_is_a_line_with_its_time() -> None:
    out, err = io.StringIO(), io.StringIO()
    terminal = Terminal(colors_out=False, colors_err=False, is_live=False, shows_logs=False)
    teller = LineOutput(OutputStreams(out=out, err=err, terminal=terminal, now=lambda: at(1)))
    teller.show_progress(progress())
    teller.show_progress(progress({worker(0): pod(worker(0))}))
    teller.show_logs(*said(worker(0), "step 1"))
    teller.show_progress(progress({worker(0): pod(worker(0), ended(0))}))

    assert err.getvalue().splitlines() == [
        "12:00:01Z  Running",
        "12:00:01Z  worker-0: Running",
        "12:00:01Z  worker-0: Succeeded",
    ]
    assert out.getvalue() == "[worker-0] step 1\n"


def test_where_nothing_can_move_how_far_a_training_is_is_a_line_every_ten_seconds() -> None:
    err, clock = io.StringIO(), FakeClock(at(0))
    terminal = Terminal(colors_out=False, colors_err=False, is_live=False, shows_logs=False)
    output = LineOutput(OutputStreams(out=io.StringIO(), err=err, terminal=terminal, now=clock.now))
    seen = progress({worker(0): pod(worker(0))})
    for half_second in range(60):
        done = min(50, half_second + 1)
        trained = TrainingProgress(updated_at=clock.now(), done=done, total=80, metrics={"loss": "0.5"})
        output.show_progress(replace(seen, training=trained))
        output.tick()
        clock.advance(0.5)

    assert err.getvalue().splitlines() == [
        "12:00:00Z  Running",
        "12:00:00Z  worker-0: Running",
        "12:00:00Z  step 1/80 (1 %) · loss 0.5",
        "12:00:10Z  step 21/80 (26 %) · loss 0.5",
        "12:00:20Z  step 41/80 (51 %) · loss 0.5",
    ]


def test_where_nothing_can_move_a_training_that_stands_still_is_not_said_again() -> None:
    err, clock = io.StringIO(), FakeClock(at(0))
    terminal = Terminal(colors_out=False, colors_err=False, is_live=False, shows_logs=False)
    output = LineOutput(OutputStreams(out=io.StringIO(), err=err, terminal=terminal, now=clock.now))
    trained = TrainingProgress(updated_at=at(0), done=3, total=400)
    output.show_progress(replace(progress({worker(0): pod(worker(0))}), training=trained))
    for _ in range(5):
        clock.advance(60)
        output.tick()

    assert err.getvalue().count("step 3/400") == 1


def test_what_hinders_a_start_stays_whole_above_the_rows_and_is_short_below_them(
    emulate: Callable[[int, int], Emulator],
) -> None:
    terminal = emulate(60, 24)
    teller = moving(terminal)
    words = 'all 2 workers: MountVolume.SetUp failed: persistentvolumeclaim "not-there" not found'
    obstacle = Obstacle(since=BEGIN, reason="PodNotPrepared", message=words)
    status = JobStatus(admission=Admission(queued_at=BEGIN, admitted_at=BEGIN), obstacle=obstacle)
    hindered = progress({worker(0): pod(worker(0), waiting("ContainerCreating"))}, status=status)
    for _ in range(2):
        teller.show_progress(hindered)
        teller.tick()

    rows = terminal.rows()
    assert " ".join(row.strip() for row in rows[:2]) == f"Starting: PodNotPrepared: {words}"
    assert rows[-1].startswith("  PodNotPrepared: all 2 workers: MountVolume")
    assert sum("PodNotPrepared" in row for row in rows) == 2


def test_that_its_places_are_lost_and_that_there_are_new_ones_stays_above_the_rows(
    emulate: Callable[[int, int], Emulator],
) -> None:
    terminal = emulate(130, 24)
    teller = moving(terminal)
    lost = WaitReason(code="Preempted", message="TFJob n/high is more urgent")
    full = WaitReason(code="InsufficientResources", message="needs 4 GPUs, 1 is free")
    for admission in (
        Admission(queued_at=BEGIN, wait=lost),
        Admission(queued_at=BEGIN, wait=full),
        Admission(queued_at=BEGIN, admitted_at=at(7)),
    ):
        teller.show_progress(progress(status=JobStatus(phase=Phase.RUNNING, admission=admission)))
        teller.tick()
    teller.close()

    assert terminal.rows() == [
        "Running: preempted by another job (TFJob n/high is more urgent); it is queued again",
        "Running: scheduled again",
    ]


@given(st.text(st.characters(codec=None)), st.integers(20, 200))
def test_a_row_is_one_row_whatever_is_in_it(message: str, width: int) -> None:
    status = JobStatus(
        admission=Admission(queued_at=BEGIN, admitted_at=BEGIN),
        obstacle=Obstacle(since=BEGIN, reason="PodNotPrepared", message=message),
    )
    rows = progress_rows(
        progress(status=status), ProgressFrame(width=width, height=24, now=at(1), tail=[message]), colored
    )

    for row in map(without_colors, rows):
        assert len(row.splitlines()) <= 1
        assert cell_len(row) < width
