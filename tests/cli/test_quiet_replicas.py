"""What is said of a training that runs and prints nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tarragon.cli.explain.replica_output import quiet_lines
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.cli.jobview.quiet_replicas import (
    ReplicaOutput,
    longest_pause,
    prints_while_training,
    quiet_replicas,
    shown_line,
    silence_lines,
)
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress
from tarragon.job.status import JobStatus
from tarragon.kube.codec import decode, encode
from tarragon.kube.meta import CustomObject
from tests.cli.scenes import at, worker
from tests.operator.stage import group, job


def output(replica: Replica, **fields: Any) -> ReplicaOutput:
    """It started a minute before, and printed every second."""
    said = ReplicaOutput(replica=replica, at=at(0), started=at(-60), last_line="step 3/10", longest_pause=1.0)
    return replace(said, **fields)


def test_a_replica_that_printed_nothing_for_long_is_named_with_its_last_line() -> None:
    quiet = quiet_replicas([output(worker(0))], at(35))

    assert list(silence_lines(quiet, at(35))) == ["worker-0 has printed nothing for 35s; its last line: step 3/10"]


def test_a_replica_that_never_printed_is_quiet_since_its_start() -> None:
    quiet = quiet_replicas([output(worker(0), last_line="", longest_pause=None)], at(200))

    assert list(silence_lines(quiet, at(200))) == ["worker-0 has printed nothing since it started 3m20s ago"]


@pytest.mark.parametrize(
    ("pause", "seconds", "is_quiet"),
    [(1.0, 29, False), (1.0, 31, True), (60.0, 170, False), (60.0, 181, True), (None, 31, True)],
)
def test_how_long_is_long_follows_from_the_pace_of_the_job(
    pause: float | None, seconds: float, is_quiet: object
) -> None:
    assert bool(quiet_replicas([output(worker(0), longest_pause=pause)], at(seconds))) is is_quiet


def test_while_others_print_only_a_replica_that_had_a_pace_is_named() -> None:
    talking = output(worker(0), at=at(99))
    stopped = output(worker(1))
    never = output(worker(2), last_line="", longest_pause=None)

    assert quiet_replicas([talking, stopped, never], at(100)) == [stopped]


def test_a_replica_that_leaves_printing_to_the_chief_after_its_start_is_not_named() -> None:
    chief, other = output(worker(0), at=at(99)), output(worker(1), started=at(-1), longest_pause=0.3)

    assert quiet_replicas([chief, other], at(100)) == []
    assert quiet_replicas([replace(chief, at=at(1)), other], at(100)) != []


def running_job(progress: Progress | None = None) -> ClusterJob:
    found = read_job(FRAMEWORKS[0], decode(encode(job("digits", Worker=group(2))), CustomObject))
    return replace(found, status=JobStatus(phase=Phase.RUNNING, progress=progress))


def test_why_says_how_to_see_where_a_quiet_replica_stands() -> None:
    quiet = [output(worker(0), at=at(0), pid=4711), output(worker(1), at=at(5))]

    assert list(quiet_lines(running_job(), quiet, at(60), is_local=True)) == [
        "worker-0 (process 4711) has printed nothing for 1m; its last line: step 3/10",
        "worker-1 has printed nothing for 55s; its last line: step 3/10",
        "to see where worker-0 stands: `py-spy dump --pid 4711`, after `pip install py-spy`",
        "causes, and what else to look at: `tarragon docs howto/hangs`",
    ]
    assert list(quiet_lines(running_job(), quiet, at(60), is_local=False))[2] == (
        "to see where worker-0 stands: `kubectl exec -n default digits-worker-0 -- py-spy dump --pid 1`, "
        "if its image has py-spy"
    )


def test_why_says_how_far_a_quiet_training_was_but_nothing_of_one_that_reports_without_printing() -> None:
    hung = running_job(Progress(updated_at=at(1), done=3, total=10))
    reports = running_job(Progress(updated_at=at(55), done=3, total=10))

    said = list(quiet_lines(hung, [output(worker(0))], at(60), is_local=True))
    assert said[0] == "its progress is step 3/10 (30 %), as of 59s ago"
    assert list(quiet_lines(reports, [output(worker(0))], at(60), is_local=True)) == []


def test_the_longest_silence_comes_first_and_many_are_counted() -> None:
    lines = list(silence_lines(quiet_replicas([output(worker(n), at=at(10 - n)) for n in range(8)], at(100)), at(100)))

    assert lines[0].startswith("worker-7 has printed nothing for 1m37s")
    assert lines[5:] == ["and 3 more have printed nothing for at least 1m30s"]


def test_a_pause_is_known_from_two_lines_on() -> None:
    assert longest_pause([at(0)]) is None
    assert longest_pause([at(0), at(2), at(9), at(10)]) == 7


def test_replicas_that_serve_others_are_not_expected_to_print() -> None:
    kinds = {framework.kind: framework.roles for framework in FRAMEWORKS}

    assert not prints_while_training(kinds["TFJob"][PS])
    assert not prints_while_training(kinds["MPIJob"][WORKER])
    assert prints_while_training(kinds["TFJob"][WORKER])
    assert prints_while_training(kinds["MPIJob"][LAUNCHER])


def test_the_last_line_is_the_last_state_of_a_bar_and_safe_on_a_terminal() -> None:
    assert shown_line(["step 1", "\r1/9 =\r3/9 ===\x1b[31m", "  "]) == "3/9 ==="
    assert len(shown_line(["x" * 500])) <= 100
    assert shown_line([]) == ""
