"""What `run` says of a job that prints nothing, and of its replicas when it is stopped."""

from __future__ import annotations

from dataclasses import replace

from tarragon.cli.follow.silence_watch import SilenceWatch
from tarragon.cli.jobview.progress import Progress
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.progress import Progress as TrainingProgress
from tests.cli.scenes import at, ended, pod, progress, waiting, worker

WHY = "tarragon why digits"


def running(done: int | None = None) -> Progress:
    seen = progress({worker(0): pod(worker(0)), worker(1): pod(worker(1))}, wished={WORKER: 2})
    return seen if done is None else replace(seen, training=TrainingProgress(updated_at=at(0), done=done))


def watch(seen: Progress | None = None) -> SilenceWatch:
    result = SilenceWatch(0)
    result.progressed(running() if seen is None else seen, 0)
    return result


def moments(silence: SilenceWatch, until: int, since: int = 0) -> list[int]:
    """The seconds at which a line is printed."""
    return [second for second in range(since, until) if silence.note(second, WHY)]


def test_a_minute_without_output_is_said_once_and_then_after_twice_as_long_each() -> None:
    assert moments(watch(), 1000) == [60, 120, 240, 480, 960]


def test_the_line_names_the_last_output_and_where_to_look() -> None:
    silence = watch()
    silence.printed(worker(1), ["step 3/10", ""], 5)

    assert silence.note(64, WHY) == ""
    assert silence.note(65, WHY) == (
        "no output for 1m; the last line is of worker-1: step 3/10; where it stands: `tarragon why digits`"
    )


def test_new_output_begins_anew_and_what_was_a_pause_before_is_the_pace_of_the_job() -> None:
    silence = watch()
    silence.printed(worker(0), ["Epoch 1/9"], 1)
    assert moments(silence, 101) == [61]
    silence.printed(worker(0), ["Epoch 2/9"], 101)

    assert moments(silence, 400, since=101) == [301]


def test_replicas_that_start_and_reported_progress_are_no_silence() -> None:
    silence = watch()
    silence.progressed(running(done=7), 50)
    silence.progressed(running(done=7), 90)

    assert moments(silence, 120) == [110]


def test_a_job_is_not_silent_while_what_a_replica_prints_cannot_be_read() -> None:
    silence = watch()
    silence.unreadable(worker(1))
    assert moments(silence, 300) == []

    silence.printed(worker(1), ["back"], 300)
    assert moments(silence, 1000, since=300) == [900]


def test_nothing_is_said_of_a_job_that_waits() -> None:
    waits = progress({worker(0): pod(worker(0), waiting("ContainerCreating"))})

    assert moments(watch(replace(waits, state="Starting")), 300) == []


def test_of_a_stopped_job_each_replica_has_its_state_and_its_last_line() -> None:
    silence = watch(progress({worker(0): pod(worker(0)), worker(1): pod(worker(1), ended(0))}, wished={WORKER: 2}))
    silence.printed(worker(0), ["step 3/10"], 5)

    assert silence.table(40) == [
        "REPLICA    STATE       LAST OUTPUT   LAST LINE",
        "worker-0   Running     35s ago       step 3/10",
        "worker-1   Succeeded   -             -",
    ]


def test_of_many_replicas_the_first_ones_are_listed() -> None:
    silence = watch(progress({worker(n): pod(worker(n)) for n in range(40)}, wished={WORKER: 40}))

    assert len(silence.table(1)) == 18
    assert silence.table(1)[-1] == "and 24 more"


def test_a_job_that_never_started_has_no_table() -> None:
    assert watch(progress(wished={WORKER: 2})).table(9) == ()
