from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tarragon.base.escaping import STYLE_ESCAPE
from tarragon.cli.jobview.causes import ReplicaEnvironment
from tarragon.cli.jobview.progress import Progress
from tarragon.cli.output.style import colored, uncolored
from tarragon.cli.report.ending import FinishedJob, exit_table, failure_report, success_report
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import Replica, RestartPolicy
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress as Training
from tarragon.job.progress import Source
from tarragon.job.status import Condition, FirstFailure, JobStatus
from tarragon.kube.core import ContainerState
from tests.cli.scenes import at, ended, pod, progress, waiting, worker

TWO = {WORKER: 2}


def ending(seen: Progress, tails: Mapping[Replica, Sequence[str]] | None = None) -> FinishedJob:
    tails = tails or {}
    return FinishedJob(
        progress=seen,
        seconds=14.2,
        deciding_replicas=[worker(0)],
        tails=tails,
        line_counts={worker(0): 0} | {replica: len(lines) for replica, lines in tails.items()},
        exit_codes=SINCE_TRAINING_OPERATOR_1_5,
        environments={WORKER: ReplicaEnvironment(name="/envs/tf")},
    )


def finished(code: int, until: float = 3) -> Progress:
    status = JobStatus(phase=Phase.SUCCEEDED if code == 0 else Phase.FAILED, completion_time=at(14.2))
    return progress({worker(0): pod(worker(0), ended(code, until=until))}, status=status)


def test_a_success_is_one_line_with_its_time_and_numbers() -> None:
    end = ending(finished(0), {worker(0): ["step 1", "done: loss=0.1 accuracy=0.957"]})

    assert list(success_report(end, uncolored)) == ["Succeeded  digits in 14.2 s  accuracy 0.957  loss 0.1"]


def test_what_a_job_waited_for_its_admission_is_no_part_of_its_time() -> None:
    end = replace(ending(finished(0), {worker(0): ["done: loss=0.1"]}), seconds=57.4)

    waited, at_once = (next(iter(success_report(replace(end, waited=each), uncolored))) for each in (27.3, 0.4))

    assert waited == "Succeeded  digits in 30.1 s, after waiting 27.3 s  loss 0.1"
    assert at_once == "Succeeded  digits in 57.4 s  loss 0.1"


def test_a_job_that_said_nothing_and_was_quick_is_doubted() -> None:
    lines = list(success_report(ending(finished(0, until=1.1)), uncolored))

    assert lines[1] == "warning: worker-0 ended after 0.1 s with no output; did it train?"


def test_a_job_that_was_silent_for_long_is_trusted() -> None:
    assert len(list(success_report(ending(finished(0, until=100)), uncolored))) == 1


def test_a_job_that_said_a_word_is_trusted() -> None:
    assert len(list(success_report(ending(finished(0), {worker(0): ["hello"]}), uncolored))) == 1


def test_a_job_that_reported_its_progress_is_trusted_and_its_numbers_are_told() -> None:
    training = Training(updated_at=at(2), done=20, total=20, metrics={"lr": "0.1", "accuracy": "0.9", "loss": "0.05"})
    silent = replace(finished(0, until=8), training=training)

    assert list(success_report(ending(silent), uncolored)) == ["Succeeded  digits in 14.2 s  accuracy 0.9  loss 0.05"]
    assert "loss 0.01" in next(success_report(ending(silent, {worker(0): ["loss=0.01"]}), uncolored))


def test_numbers_that_the_operator_read_in_a_log_are_not_told_as_the_last_ones() -> None:
    training = Training(updated_at=at(2), metrics={"loss": "0.05"}, source=Source.LOG)
    seen = replace(finished(0), training=training)

    assert list(success_report(ending(seen, {worker(0): ["bye"]}), uncolored)) == ["Succeeded  digits in 14.2 s"]


def test_a_failure_names_the_first_replica_its_code_its_last_lines_and_the_usual_cause() -> None:
    pods = {
        worker(0): pod(worker(0), ended(1, until=9)),
        worker(1): pod(worker(1), ended(1, until=3)),
    }
    status = JobStatus(phase=Phase.FAILED, completion_time=at(10))
    lines = [f"line {number}" for number in range(30)] + ["ModuleNotFoundError: No module named 'pandas'"]

    report = list(failure_report(ending(progress(pods, status=status, wished=TWO), {worker(1): lines}), uncolored))

    assert report[0] == "Failed  digits after 14.2 s"
    assert report[2].startswith("worker-1 failed first: exit code 1: an error in the program")
    assert report[3] == "  │ line 11"
    assert "Probably: the module pandas is not installed in /envs/tf, which ran this replica" in "\n".join(report)
    assert report[-2:] == [
        "worker-0   Failed   1      0          8.0 s",
        "worker-1   Failed   1      0          2.0 s",
    ]


def test_the_status_knows_better_who_was_first_than_the_pods_that_are_left() -> None:
    gone = FirstFailure(replica=worker(1), exit_code=137, reason="OOMKilled", message="Killed", at=at(1))

    lines = list(failure_report(replace(ending(finished(1)), first_failure=gone), uncolored))

    assert "worker-1 failed first: killed (SIGKILL, 137), out of memory" in "\n".join(lines)
    assert "  │ Killed" in lines


def test_a_job_that_failed_without_a_replica_tells_the_words_of_its_condition() -> None:
    condition = Condition(
        type="Failed",
        is_true=True,
        reason="DeadlineExceeded",
        message="it ran longer than activeDeadlineSeconds",
        last_update_time=at(5),
        last_transition_time=at(5),
    )
    seen = progress(status=JobStatus(phase=Phase.FAILED, conditions=(condition,), completion_time=at(5)))

    assert list(failure_report(ending(seen), uncolored)) == [
        "Failed  digits after 14.2 s: it ran longer than activeDeadlineSeconds"
    ]


def test_hundreds_of_replicas_that_ended_alike_share_a_row() -> None:
    pods = {worker(index): pod(worker(index), ended(1 if index == 7 else 0)) for index in range(200)}
    seen = progress(pods, wished={WORKER: 200})

    assert [row.split("   ")[0] for row in exit_table(ending(seen))] == [
        "REPLICA",
        "worker-0 … worker-199 (199 replicas)",
        "worker-7",
    ]


def test_the_last_lines_are_shown_as_a_terminal_would_leave_them() -> None:
    lines = {worker(0): ["1/60\r7/60\x1b[K\r", "\x1b[31mlost\x1b[0m"]}

    report = list(failure_report(ending(finished(1), lines), uncolored))
    with_style = list(failure_report(ending(finished(1), lines), colored))

    assert [line for line in report if "│" in line] == ["  │ 7/60", "  │ lost"]
    assert f"{STYLE_ESCAPE}[31mlost{STYLE_ESCAPE}[0m" in "\n".join(with_style)


def test_a_replica_that_cannot_start_is_shown_with_the_reason_and_not_as_starting() -> None:
    pods = {
        worker(0): pod(worker(0), ended(128, "StartError")),
        worker(1): pod(worker(1), waiting("CreateContainerConfigError", "no such secret")),
        worker(2): pod(worker(2), ended(128, "StartError"), ending=True),
    }
    seen = progress(pods, status=JobStatus(phase=Phase.FAILED), wished={WORKER: 3})

    states = [row.split()[1] for row in exit_table(ending(seen))]
    assert states == ["STATE", "Failed", "CreateContainerConfigError", "Failed"]


def test_a_replica_that_was_stopped_has_no_exit_code_in_the_table() -> None:
    pods = {
        worker(0): pod(worker(0), ended(1, until=9), ending=True),
        worker(1): pod(worker(1), ended(1, until=3)),
    }
    seen = progress(pods, status=JobStatus(phase=Phase.FAILED, completion_time=at(10)), wished=TWO)

    assert [row.split()[:3] for row in exit_table(ending(seen))[1:]] == [
        ["worker-0", "Stopped", "-"],
        ["worker-1", "Failed", "1"],
    ]


def test_who_was_killed_is_not_said_to_have_failed_with_a_code() -> None:
    lines = list(failure_report(ending(finished(137), {worker(0): ["step 7 of 60"]}), uncolored))

    assert lines[2] == "worker-0 failed: killed (SIGKILL, 137): out of memory, kill -9, or the grace period expired"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (ended(137, until=3), "worker-0 failed, and worker-1 in the same second: killed"),
        (ended(137, until=4), "worker-0 failed first: killed"),
        (ended(1, until=3), "worker-0 failed first: killed"),
    ],
    ids=["killed in the same second", "killed later", "failed otherwise"],
)
def test_no_replica_is_said_to_be_first_of_those_that_were_killed_in_the_same_second(
    second: ContainerState, words: str
) -> None:
    pods = {worker(0): pod(worker(0), ended(137, until=3)), worker(1): pod(worker(1), second)}
    seen = progress(pods, status=JobStatus(phase=Phase.FAILED, completion_time=at(10)), wished=TWO)

    assert list(failure_report(ending(seen), uncolored))[2].startswith(words)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (RestartPolicy.EXIT_CODE, "exit code 1, permanent: an error in the program"),
        (RestartPolicy.ON_FAILURE, "exit code 1: an error in the program"),
        (RestartPolicy.NEVER, "exit code 1: an error in the program"),
    ],
)
def test_whether_an_exit_code_is_permanent_is_said_only_where_the_restart_policy_asks(
    policy: RestartPolicy, words: str
) -> None:
    end = replace(ending(finished(1)), policy_of=lambda _: policy)

    assert list(failure_report(end, uncolored))[2].startswith(f"worker-0 failed: {words}")


def test_the_memory_that_a_replica_lacked_is_told_under_every_restart_policy() -> None:
    gone = FirstFailure(replica=worker(0), exit_code=137, reason="OOMKilled", message="Killed", at=at(1))
    end = replace(ending(finished(137)), first_failure=gone, policy_of=lambda _: RestartPolicy.NEVER)

    assert list(failure_report(end, uncolored))[2].startswith("worker-0 failed: killed (SIGKILL, 137), out of memory: ")
