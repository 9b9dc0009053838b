"""Following a job of the real operator on the embedded API; only what its pods do and say is made up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tarragon.base.clock import FakeClock
from tarragon.cli.follow.attending import FollowEnd, FollowSession
from tarragon.cli.follow.awaiting import WaitGoal, wait_for_job
from tarragon.cli.follow.changes import progress_changes
from tarragon.cli.follow.progress_output import OutputStreams
from tarragon.cli.follow.unprocessed import note_if_unprocessed
from tarragon.cli.jobview import log_listener
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.jobs import ClusterJob, find_job
from tarragon.cli.jobview.log_book import ContainerRun
from tarragon.cli.jobview.log_listener import LogStreamer
from tarragon.cli.jobview.progress import Progress
from tarragon.cli.jobview.target import CommandPrefix
from tarragon.cli.output.interrupts import SignalHandler
from tarragon.cli.output.terminal import Terminal
from tarragon.cli.targets.pod_logs import unreadable_text
from tarragon.client.errors import ApiError, Unavailable, error_from_status, unavailable, unreachable
from tarragon.client.port import Client, DeleteOptions, LogOptions
from tarragon.kube.core import PODS, PRIORITY_CLASSES
from tarragon.kube.meta import Key
from tests.localcluster.kubelet.waiting import eventually
from tests.operator.stage import TFJOBS, Stage, a_stage, group

Json = dict[str, Any]
T = TypeVar("T")
PATIENCE = 60.0


class Logs:
    """What each container has said so far, as a kubelet would tell it. A run is a pod's name and a number from 0."""

    def __init__(self) -> None:
        self.runs: dict[str, list[list[bytes]]] = {}
        self.breaks = 0
        """So many of the next readers lose their connection after the first line."""
        self.refusal: ApiError | None = None
        """What every reader is told instead."""
        self.refusal_after_breaks: ApiError | None = None
        """The same once the connections were lost."""
        self.held: set[tuple[str, int]] = set()
        """Runs of which those who follow hear nothing: what they say now is still on its way."""
        self._changed = asyncio.Event()
        self._ended: set[tuple[str, int]] = set()

    def say(self, pod: str, *lines: str) -> None:
        run = self.runs.setdefault(pod, [[]])[-1]
        run += [f"2026-11-21T12:00:{len(run):02}.000000001Z {line}\n".encode() for line in lines]
        self.wake()

    def end(self, pod: str) -> None:
        self._ended.add((pod, len(self.runs.setdefault(pod, [[]])) - 1))
        self.wake()

    def restart(self, pod: str) -> None:
        self.end(pod)
        self.runs[pod].append([])

    async def read_log(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        if self.refusal is not None:
            raise self.refusal
        name = pod["metadata"]["name"]
        runs = self.runs.setdefault(name, [[]])
        number = len(runs) - (2 if options.previous else 1)
        sent = 0
        while True:
            while options.follow and (name, number) in self.held:
                await self._changed.wait()
            for line in runs[number][sent:]:
                sent += 1
                yield line
                if self.breaks and sent == 1:
                    self.breaks -= 1
                    self.refusal = self.refusal_after_breaks
                    raise unavailable("the connection broke")
            if not options.follow or (name, number) in self._ended:
                return
            await self._changed.wait()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Line:
    """A client's connection to a server that may die: then all that is read over it breaks, and nobody answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_cut = asyncio.Event()

    def cut(self) -> None:
        self._is_cut.set()

    async def list(self, *asked: Any) -> Any:
        if self._is_cut.is_set():
            raise unreachable("cannot connect")
        return await self._client.list(*asked)

    def watch(self, *asked: Any) -> AsyncIterator[Any]:
        return self._carried(self._client.watch(*asked))

    def stream_list(self, *asked: Any) -> AsyncIterator[Any] | None:
        stream = self._client.stream_list(*asked)
        return None if stream is None else self._carried(stream)

    def pod_log(self, *asked: Any) -> AsyncIterator[bytes]:
        return self._carried(self._client.pod_log(*asked))

    async def _carried(self, pieces: AsyncIterator[T]) -> AsyncIterator[T]:
        carried: asyncio.Queue[T | ApiError | None] = asyncio.Queue()

        async def carry() -> None:
            try:
                async for piece in pieces:
                    carried.put_nowait(piece)
                carried.put_nowait(None)
            except ApiError as error:
                carried.put_nowait(error)

        async def cut() -> None:
            await self._is_cut.wait()
            carried.put_nowait(unreachable("the connection broke"))

        tasks = [asyncio.create_task(carry()), asyncio.create_task(cut())]
        try:
            while (piece := await carried.get()) is not None:
                if isinstance(piece, ApiError):
                    raise piece
                yield piece
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Watcher:
    """Follows a job and notes what it is told."""

    def __init__(self, stage: Stage, job: ClusterJob) -> None:
        self.lines: list[str] = []
        self.unread: list[str] = []
        self.seen: list[Progress] = []
        self._stage = stage
        self._news = asyncio.Event()
        self.listener = LogStreamer(job.framework.main_container, stage.world.clock, self._said)
        self.listener.on_unreadable(lambda replica, error: self.unread.append(unreadable_text(replica, error)))
        self.follower = JobFollower(job, stage.world.clock, self._progressed, self.listener)
        self.line = Line(stage.world.client)
        self.task = self._follows()

    def reconnects(self) -> None:
        self.line = Line(self._stage.world.client)
        self.task = self._follows()

    def _follows(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.follower.follow(self.line))  # type: ignore[arg-type]

    @property
    def progress_lines(self) -> list[str]:
        """As Plain would print it."""
        befores: list[Progress | None] = [None, *self.seen]
        return [
            line for before, after in zip(befores, self.seen, strict=False) for line in progress_changes(before, after)
        ]

    async def until(self, *lines: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not set(lines) <= {*self.lines, *self.progress_lines}:
                self._news.clear()
                await self._news.wait()

    async def end(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.task

    def _said(self, replica: object, lines: object) -> None:
        assert isinstance(lines, list)
        self.lines += [f"[{replica}] {text}" for _, text in lines]
        self._news.set()

    def _progressed(self, progress: Progress) -> None:
        self.seen.append(progress)
        self._news.set()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with a_stage(tmp_path) as stage:
        await stage.node("here")
        assert not stage.operator().done()
        yield stage


@pytest.fixture
def logs(stage: Stage) -> Logs:
    made = Logs()
    stage.world.api.pod_logs = made
    return made


async def watcher(stage: Stage, name: str) -> Watcher:
    return Watcher(stage, await find_job(stage.world.client, name, "default"))


async def restarted(stage: Stage, pod: str, count: int) -> None:
    running: Json = {"name": "tensorflow", "image": "i", "imageID": "", "ready": True, "restartCount": count}
    running["state"] = {"running": {"startedAt": "2026-11-21T12:01:00Z"}}
    running["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    status = {"phase": "Running", "containerStatuses": [running]}
    await stage.world.client.patch(PODS, Key("default", pod), {"status": status}, subresource="status")


async def test_a_job_is_followed_from_its_first_pod_to_its_end(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(2))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0", "digits-worker-1")
    await stage.all_run("digits-worker-0", "digits-worker-1")
    logs.say("digits-worker-0", "step 1")
    logs.say("digits-worker-1", "step 1")
    await watching.until("Running", "[worker-0] step 1", "[worker-1] step 1")
    for pod in ("digits-worker-0", "digits-worker-1"):
        logs.say(pod, "done: accuracy=0.95")
        logs.end(pod)
        await stage.plays(pod, "Succeeded", 0)

    await watching.end()

    assert watching.follower.progress.state == "Succeeded"
    assert "Succeeded" in watching.progress_lines
    assert sorted(watching.lines) == [
        "[worker-0] done: accuracy=0.95",
        "[worker-0] step 1",
        "[worker-1] done: accuracy=0.95",
        "[worker-1] step 1",
    ]


async def test_a_broken_connection_repeats_no_line_and_loses_none(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    logs.say("digits-worker-0", "one", "two", "three")
    logs.breaks = 2
    await stage.all_run("digits-worker-0")
    await watching.until("[worker-0] three")
    logs.say("digits-worker-0", "four")
    logs.end("digits-worker-0")
    await stage.plays("digits-worker-0", "Succeeded", 0)

    await watching.end()

    assert watching.lines == ["[worker-0] one", "[worker-0] two", "[worker-0] three", "[worker-0] four"]


async def test_what_a_replica_that_runs_on_has_said_by_the_end_of_its_job_is_told(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(2))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0", "digits-worker-1")
    await stage.all_run("digits-worker-0", "digits-worker-1")
    logs.say("digits-worker-1", "one")
    await watching.until("[worker-1] one")
    logs.held.add(("digits-worker-1", 0))
    logs.say("digits-worker-1", "two", "three")
    logs.end("digits-worker-0")
    await stage.plays("digits-worker-0", "Succeeded", 0)

    await watching.end()

    assert watching.lines == ["[worker-1] one", "[worker-1] two", "[worker-1] three"]
    assert watching.unread == []


async def test_last_words_that_a_server_dies_with_are_heard_from_the_next_one(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    await stage.all_run("digits-worker-0")
    logs.say("digits-worker-0", "one")
    await watching.until("[worker-0] one")
    logs.held.add(("digits-worker-0", 0))
    logs.say("digits-worker-0", "two")
    logs.end("digits-worker-0")
    await stage.plays("digits-worker-0", "Succeeded", 0)
    await watching.until("Succeeded")

    watching.line.cut()
    with pytest.raises(Unavailable):
        await watching.end()
    logs.held.clear()
    watching.reconnects()
    await watching.end()

    assert watching.lines == ["[worker-0] one", "[worker-0] two"]


async def test_last_words_that_do_not_come_are_said_to_be_missing(
    stage: Stage, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_listener, "DRAIN_TIMEOUT", 0.1)
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    logs.held.add(("digits-worker-0", 0))
    await stage.plays("digits-worker-0", "Succeeded", 0)

    await watching.end()

    assert watching.unread == ["the log of worker-0 can't be read: no more of it was received for 0.1 s"]


async def test_a_container_that_restarts_is_heard_before_and_after(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1, policy="OnFailure"))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    logs.say("digits-worker-0", "first try")
    logs.restart("digits-worker-0")
    logs.runs["digits-worker-0"][-1] = [b"2026-11-21T12:01:00Z second try\n"]
    await restarted(stage, "digits-worker-0", 1)
    await watching.until("worker-0: Running, restart 1, as it failed with exit code 1", "[worker-0] second try")

    assert watching.lines == ["[worker-0] first try", "[worker-0] second try"]
    watching.task.cancel()


async def test_a_run_that_the_next_one_has_answered_for_is_heard_all_the_same(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1, policy="OnFailure"))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    logs.say("digits-worker-0", "first try")
    logs.restart("digits-worker-0")
    logs.runs["digits-worker-0"][-1] = [b"2026-11-21T12:01:00.5Z second try\n"]
    await stage.all_run("digits-worker-0")
    await watching.until("[worker-0] second try")

    await restarted(stage, "digits-worker-0", 1)
    await watching.until("[worker-0] first try")
    logs.runs["digits-worker-0"][-1] += [b"2026-11-21T12:01:01Z third line\n", b"2026-11-21T12:01:02Z last line\n"]
    logs.wake()
    await watching.until("[worker-0] last line")
    (replica,) = watching.listener.positions.line_counts
    pod = stage.pods()["digits-worker-0"]["metadata"]
    run = ContainerRun(replica, pod["uid"], "tensorflow", 0)
    watching.listener.report_missed(
        run, ["2026-11-21T12:00:00.000000001Z first try"]
    )  # as `run` reads it from the disk

    expected = ["second try", "first try", "third line", "last line"]
    assert watching.lines == [f"[worker-0] {line}" for line in expected]
    watching.task.cancel()


async def test_the_last_words_of_a_run_are_heard_before_the_first_of_the_next(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(2, policy="OnFailure"))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0", "digits-worker-1")
    await stage.all_run("digits-worker-0", "digits-worker-1")
    logs.say("digits-worker-0", "one")
    await watching.until("[worker-0] one")
    logs.held.add(("digits-worker-0", 0))
    logs.say("digits-worker-0", "two")
    logs.restart("digits-worker-0")
    logs.runs["digits-worker-0"][-1] = [b"2026-11-21T12:01:00.5Z three\n"]
    await restarted(stage, "digits-worker-0", 1)
    await watching.until("worker-0: Running, restart 1, as it failed with exit code 1")
    for number in range(10):  # time enough to speak for who would not wait
        logs.say("digits-worker-1", f"line {number}")
        await watching.until(f"[worker-1] line {number}")

    logs.held.clear()
    logs.wake()
    await watching.until("[worker-0] three")

    log_lines = [line for line in watching.lines if line.startswith("[worker-0]")]
    assert log_lines == ["[worker-0] one", "[worker-0] two", "[worker-0] three"]
    watching.task.cancel()


async def test_a_job_that_somebody_deletes_is_gone(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    await stage.all_run("digits-worker-0")
    await watching.until("Running")
    await stage.world.client.delete(TFJOBS, Key("default", "digits"), DeleteOptions(propagation_policy="Background"))

    await watching.end()

    assert watching.follower.is_deleted


async def test_a_job_that_has_ended_long_ago_is_told_with_its_logs(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1))
    await stage.until_pods("digits-worker-0")
    logs.say("digits-worker-0", "done: accuracy=0.95")
    logs.end("digits-worker-0")
    await stage.plays("digits-worker-0", "Succeeded", 0)
    await stage.until_state("digits", "Succeeded")

    watching = await watcher(stage, "digits")
    await watching.end()

    assert watching.lines == ["[worker-0] done: accuracy=0.95"]


async def test_what_was_told_over_one_connection_is_not_told_over_the_next(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    await stage.all_run("digits-worker-0")
    logs.say("digits-worker-0", "one")
    await watching.until("[worker-0] one")
    watching.task.cancel()
    await asyncio.gather(watching.task, return_exceptions=True)

    logs.say("digits-worker-0", "two")
    watching.task = asyncio.create_task(watching.follower.follow(stage.world.client))
    await watching.until("[worker-0] two")

    assert watching.lines == ["[worker-0] one", "[worker-0] two"]
    watching.task.cancel()


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (unavailable("dial tcp 10.0.0.7:10250: no route to host"), "dial tcp 10.0.0.7:10250: no route to host"),
        (
            error_from_status({"code": 403, "reason": "Forbidden", "message": "no"}),
            "you may not get pods/log in this namespace",
        ),
    ],
)
async def test_a_log_that_nobody_can_give_is_said_once_and_not_waited_for(
    stage: Stage, logs: Logs, monkeypatch: pytest.MonkeyPatch, refusal: ApiError, words: str
) -> None:
    monkeypatch.setattr(log_listener, "DRAIN_TIMEOUT", 10 * PATIENCE)
    logs.refusal = refusal
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    await stage.all_run("digits-worker-0")
    async with asyncio.timeout(PATIENCE):
        while not watching.unread:
            await stage.world.clock.sleep(0.05)
    await stage.plays("digits-worker-0", "Succeeded", 0)
    await watching.end()

    assert watching.unread == [f"the log of worker-0 can't be read: {words}"]


async def test_a_log_that_nobody_can_give_once_the_job_has_ended_is_said_once(stage: Stage, logs: Logs) -> None:
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    await stage.all_run("digits-worker-0")
    logs.breaks = 1
    logs.refusal_after_breaks = unavailable("dial tcp 10.0.0.7:10250: no route to host")
    logs.say("digits-worker-0", "one")
    await watching.until("[worker-0] one")
    await stage.plays("digits-worker-0", "Succeeded", 0)
    await watching.end()

    assert watching.unread == ["the log of worker-0 can't be read: dial tcp 10.0.0.7:10250: no route to host"]


async def test_a_log_that_is_cut_again_and_again_is_no_log_that_cannot_be_read(stage: Stage, logs: Logs) -> None:
    logs.breaks = 5
    logs.say("digits-worker-0", "one", "two")
    await stage.submit("digits", Worker=group(1))
    watching = await watcher(stage, "digits")
    await stage.until_pods("digits-worker-0")
    await stage.all_run("digits-worker-0")
    await watching.until("[worker-0] two")
    watching.task.cancel()

    assert watching.lines == ["[worker-0] one", "[worker-0] two"]
    assert watching.unread == []


async def test_a_cluster_that_goes_away_is_said_to_whoever_follows(stage: Stage) -> None:
    await stage.submit("digits", Worker=group(1))
    job = await find_job(stage.world.client, "digits", "default")
    follower = JobFollower(job, stage.world.clock, lambda _: None)

    with pytest.raises(Unavailable):
        await follower.follow(Gone())  # type: ignore[arg-type]


class Gone:
    """Nobody answers."""

    def stream_list(self, *_: object) -> None:
        return

    async def list(self, *_: object) -> None:
        raise unavailable("cannot connect")


PLAIN = Terminal(colors_out=False, colors_err=False, is_live=False, shows_logs=False)


class Here:
    """A cluster whose connection never breaks."""

    nodes_folder = None
    command_prefix = CommandPrefix("tarragon --kubeconfig prod.yaml", "default")

    def __init__(self, stage: Stage, *, is_local: bool = False) -> None:
        self.is_local = is_local
        self._stage = stage

    async def follow(self, follower: JobFollower, *_: object) -> None:
        await follower.follow(self._stage.world.client)

    @asynccontextmanager
    async def writing(self, _: object) -> AsyncIterator[Client]:
        yield self._stage.world.client


async def test_a_job_that_loses_its_places_is_followed_until_it_has_new_ones_and_ends(
    stage: Stage, logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    await stage.world.create(PRIORITY_CLASSES, "high", namespace="", value=1000)
    urgent = {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}}
    await stage.submit("low", Worker=group(1, cpu="8"))
    seen = await watcher(stage, "low")
    await stage.until_pods("low-worker-0")
    await stage.all_run("low-worker-0")
    await seen.until("Running")
    here: Any = Here(stage)
    nothing = SignalHandler(asyncio.get_running_loop())
    waits = asyncio.create_task(wait_for_job(here, seen.follower.job, WaitGoal(), stage.world.clock, nothing))

    await stage.submit("high", Worker=group(1, cpu="8"), **urgent)
    lost = "preempted by another job (TFJob default/high has priority 1000, this job has priority 0); it is queued"
    await seen.until(f"Restarting: {lost} again")
    await stage.world.until(lambda: "deletionTimestamp" in stage.pods()["low-worker-0"]["metadata"])
    await stage.end_pods()
    await stage.until_pods("high-worker-0")
    await stage.plays("high-worker-0", "Succeeded", 0)
    await stage.until_pods("high-worker-0", "low-worker-0")
    await stage.all_run("low-worker-0")
    printed = ""

    def is_told() -> bool:
        nonlocal printed
        printed += capsys.readouterr().err
        return printed.endswith("tfjob/low is now Running.\n")

    await eventually(is_told)
    await stage.plays("low-worker-0", "Succeeded", 0)

    await seen.end()
    assert (await waits).exit_code == 0
    assert seen.progress_lines[-1] == "Succeeded"
    assert f"tfjob/low is Restarting: {lost} again\n" in printed


@pytest.mark.parametrize("watches", [False, True])
async def test_a_job_that_no_operator_processes_is_said_to_wait_for_one_once_within_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, watches: bool
) -> None:
    async with a_stage(tmp_path) as stage:
        job, clock = await unprocessed_job(stage), FakeClock()
        here: Any = Here(stage)
        streams = OutputStreams(out=sys.stdout, err=sys.stderr, terminal=PLAIN, now=clock.now)
        goal = WaitGoal(changes=streams if watches else None)
        waits = asyncio.create_task(wait_for_job(here, job, goal, clock, SignalHandler(asyncio.get_running_loop())))
        await eventually(clock.next_due)
        before = capsys.readouterr().err
        clock.advance(10)
        after = await eventually(lambda: capsys.readouterr().err)
        clock.advance(60)
        await stage.world.client.delete(TFJOBS, job.key)
        await waits

    assert "no operator" not in before
    assert after.count("no operator has processed it yet") == 1
    assert "`tarragon --kubeconfig prod.yaml check --operator` looks for one" in after
    assert "; if there is none, `tarragon docs install` says how to install it" in after
    assert "no operator" not in capsys.readouterr().err


async def test_whoever_runs_a_job_that_no_operator_processes_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_stage(tmp_path) as stage:
        job, clock = await unprocessed_job(stage), FakeClock()
        here: Any = Here(stage)
        follows = asyncio.create_task(FollowSession(job, here, PLAIN, clock, 0.0).run(None))
        await eventually(lambda: "Waiting" in capsys.readouterr().err)
        clock.advance(10)
        after = await eventually(lambda: capsys.readouterr().err)
        await stage.world.client.delete(TFJOBS, job.key)
        await follows

    assert after.count("no operator has processed it yet") == 1


async def test_whoever_presses_ctrl_c_before_the_scheduler_has_decided_reads_the_notes_in_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_stage(tmp_path) as stage:
        job, clock = await unprocessed_job(stage), FakeClock()
        here: Any = Here(stage, is_local=True)
        session = FollowSession(job, here, PLAIN, clock, clock.monotonic())
        session.hold_back(["tfjob/digits created"])
        follows = asyncio.create_task(session.run(None))
        await eventually(clock.next_due)
        before = capsys.readouterr().err
        os.kill(os.getpid(), signal.SIGINT)
        printed = await eventually(lambda: capsys.readouterr().err)
        os.kill(os.getpid(), signal.SIGTERM)  # nobody is there who would end the job
        how = await follows

    assert how is FollowEnd.KILLED
    assert before == ""
    created, stopping = printed.splitlines()[:2]
    assert created == "tfjob/digits created"
    assert "Stopping tfjob/digits: " in stopping


async def test_the_time_before_its_admission_is_told_apart_from_that_in_which_a_job_runs(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        stage.world.api.pod_logs = Logs()
        job, clock = await unprocessed_job(stage), FakeClock()
        here: Any = Here(stage)
        session = FollowSession(job, here, PLAIN, clock, clock.monotonic())
        follows = asyncio.create_task(session.run(None))
        await eventually(clock.next_due)
        clock.advance(27)
        await stage.node("here")
        stage.start_operator()
        await stage.until_pods("digits-worker-0")
        await stage.all_run("digits-worker-0")
        await eventually(lambda: session.follower.progress.state == "Running")
        clock.advance(3)
        await stage.plays("digits-worker-0", "Succeeded", 0)
        await follows

    assert (session.waited, session.seconds) == (27, 30)


async def test_the_local_clusters_own_operator_is_never_missed(tmp_path: Path) -> None:
    async with a_stage(tmp_path) as stage:
        follower = JobFollower(await unprocessed_job(stage), stage.world.clock, lambda _: None)
        here: Any = Here(stage, is_local=True)
        said: list[str] = []

        await note_if_unprocessed(here, follower, FakeClock(), said.append)

    assert said == []


async def unprocessed_job(stage: Stage) -> ClusterJob:
    await stage.submit("digits", Worker=group(1))
    return await find_job(stage.world.client, "digits", "default")
