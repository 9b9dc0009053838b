"""Attending a job: its progress and logs until it is over, Ctrl-C is pressed or time runs out; then its result."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from enum import Enum

import click

from tarragon.base.clock import Clock
from tarragon.cli.ending import delete, kill
from tarragon.cli.follow.follower import Follower
from tarragon.cli.follow.listening import LAST_WORDS, Listener
from tarragon.cli.follow.progress import RUNNING, Progress
from tarragon.cli.follow.teller import Stage, teller
from tarragon.cli.following import Interrupts, follow, interrupts
from tarragon.cli.hints import AFTERWARDS, MEANWHILE, hints
from tarragon.cli.invocation import here
from tarragon.cli.jobs import Known
from tarragon.cli.kept import runs_of_job
from tarragon.cli.local import python_of_job
from tarragon.cli.overrides import without_gpus
from tarragon.cli.report.ending import Ending, failed, succeeded
from tarragon.cli.report.outcome import UNFINISHED, exit_code
from tarragon.cli.session import cluster
from tarragon.cli.settings import Settings, home
from tarragon.cli.style import painter
from tarragon.cli.terminal import Sink, sink
from tarragon.cli.tree import reader_went
from tarragon.cli.words import elapsed, listed
from tarragon.job.exitcode import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, Replica, ReplicaType, SuccessPolicy
from tarragon.scheduling.decision import NEVER_FITS

TICK = 0.1
"""Seconds between two drawings: fast enough to look alive, slow enough to cost nothing."""
SURE = 0.8
"""Seconds that word must stand: a cluster that has just begun may not have its nodes yet."""
CANNOT = 1
FORCED = 130


class How(Enum):
    """Why the attendance ended."""

    OVER = "over"
    STOPPED = "stopped"
    FORCED = "forced"
    TOO_LATE = "too late"
    STUCK = "stuck"
    UNREAD = "unread"


class Attendance:
    """Of one job by one user. `attend` once."""

    def __init__(self, job: Known, settings: Settings, clock: Clock) -> None:
        terminal = settings.terminal()
        self._settings = settings
        self._clock = clock
        self._teller = teller(Stage(out=sys.stdout, err=sys.stderr, terminal=terminal, now=clock.now))
        self._listener = Listener(job.framework.main_container, clock, self._teller.said)
        self._follower = Follower(job, clock, self._progressed, self._listener)
        self._stuck: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._doubt: asyncio.Task[None] | None = None
        self._began = clock.monotonic()
        self._took = 0.0

    async def attend(self, limit: float | None) -> int:
        """The exit code. `limit`: seconds after which it is left alone."""
        try:
            how = await self._watch(limit)
        finally:
            self._teller.close()
        return self._told(how, limit)

    async def _watch(self, limit: float | None) -> How:
        with interrupts() as counted:
            ticking = asyncio.create_task(self._tick())
            following = asyncio.create_task(follow(self._follower, self._clock, self._teller.note))
            try:
                return await self._first(following, counted, limit)
            finally:
                tasks = [ticking, following, *([self._doubt] if self._doubt is not None else [])]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _first(self, following: asyncio.Task[None], counted: Interrupts, limit: float | None) -> How:
        wanted = (following, counted.first, self._stuck)
        await asyncio.wait(wanted, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            # `tarragon run FILE | head`: whoever read the logs has seen enough.
            if isinstance(following.exception(), BrokenPipeError):
                return How.UNREAD
            following.result()
            return How.OVER
        if counted.first.done():
            return await self._stop(following, counted)
        return How.STUCK if self._stuck.done() else How.TOO_LATE

    async def _stop(self, following: asyncio.Task[None], counted: Interrupts) -> How:
        name = self._follower.job.name
        self._teller.note(f"Stopping {name}: its replicas may take their time to end; Ctrl-C again ends them at once.")
        stopping = asyncio.create_task(self._delete())
        await asyncio.wait((stopping, counted.second), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            async with cluster(self._settings, self._clock) as http:
                await kill(http, self._follower.job)
            return How.FORCED
        stopping.result()
        await asyncio.wait((following,), timeout=LAST_WORDS)
        return How.STOPPED

    async def _delete(self) -> None:
        async with cluster(self._settings, self._clock) as http:
            await delete(http, self._follower.job, self._clock)

    async def _tick(self) -> None:
        while True:
            self._teller.tick()
            await self._clock.sleep(TICK)

    def _progressed(self, progress: Progress) -> None:
        self._teller.progressed(progress)
        if progress.is_final and not self._took:
            # The object's own times have whole seconds only.
            self._took = self._clock.monotonic() - self._began
        never_fits = progress.wait is not None and progress.wait.code == NEVER_FITS
        if never_fits and self._doubt is None:
            self._doubt = asyncio.create_task(self._give_up())
        elif not never_fits and self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None

    async def _give_up(self) -> None:
        await self._clock.sleep(SURE)
        if not self._stuck.done():
            self._stuck.set_result(None)

    def _told(self, how: How, limit: float | None) -> int:
        match how:
            case How.OVER:
                return self._result()
            case How.STOPPED:
                self._say(f"Stopped {self._follower.job.name}: it is deleted, its logs are kept.", AFTERWARDS[:1])
                return exit_code(self._follower.progress, self._follower.job.status, is_gone=True)
            case How.FORCED:
                self._say(f"Killed {self._follower.job.name}: it is deleted, its logs are kept.", AFTERWARDS[:1])
                return FORCED
            case How.TOO_LATE:
                words = f"{self._follower.job.name} has not ended within {elapsed(limit or 0)}; it goes on."
                self._say(words, MEANWHILE)
                return UNFINISHED
            case How.UNREAD:
                self._say(f"Nobody reads the logs any more; {self._follower.job.name} goes on.", MEANWHILE)
                return reader_went()
            case How.STUCK:
                self._say(stuck(self._follower), AFTERWARDS[1:])
                return CANNOT

    def _result(self) -> int:
        end, paint = self._ending(), painter(colors=self._settings.terminal().colors_out)
        key, state = self._follower.job.key, self._follower.progress.state
        if self._follower.is_gone:
            self._say(f"{self._follower.job.name} was deleted by somebody; its logs are kept.", AFTERWARDS[:1])
        elif state == "Succeeded":
            self._print(succeeded(end, paint))
            _hint([*filter(None, [left_running(self._follower)]), *hints(here(), key, AFTERWARDS)])
        elif state == "Failed":
            self._print(failed(end, paint))
            _hint([*filter(None, [left_running(self._follower)]), *hints(here(), key, AFTERWARDS)])
        else:
            self._say(f"{self._follower.job.name} is suspended: nothing of it runs.", AFTERWARDS)
        return exit_code(self._follower.progress, self._follower.job.status, is_gone=self._follower.is_gone)

    def _print(self, lines: Iterable[str]) -> None:
        """The result goes where the logs went; somebody who looks at a terminal meanwhile sees it, too."""
        told = list(lines)
        for line in told:
            click.echo(line, color=True)
        if sink(sys.stdout) is not Sink.TERMINAL and sink(sys.stderr) is Sink.TERMINAL:
            click.echo(told[0], err=True, color=True)

    def _say(self, words: str, wanted: Sequence[tuple[str, str]]) -> None:
        click.echo(words, err=True)
        _hint(hints(here(), self._follower.job.key, wanted))

    def _ending(self) -> Ending:
        job = self._follower.job
        book = self._listener.book
        runs = runs_of_job(home().nodes, job)
        return Ending(
            progress=self._follower.progress,
            took=self._took,
            ran={run.replica: run.seconds for run in runs if run.seconds is not None},
            first_failure=job.status.first_failure,
            deciding=deciding(job),
            tails=book.tails,
            said=book.said,
            exit_codes=job.dialect.exit_codes if job.dialect is not None else SINCE_TRAINING_OPERATOR_1_5,
            python=python_of_job(job),
        )


def stuck(follower: Follower) -> str:
    """Why it can never start, and what may help."""
    job, wait = follower.job, follower.progress.wait
    words = [f"Error: {job.name} can never start here: {wait.message if wait is not None else ''}"]
    if without_gpus({"spec": job.object.spec})[1]:
        words.append("  `tarragon run FILE --cpu-only` trains it without the GPUs that it asks for")
    return "\n".join(words)


def left_running(follower: Follower) -> str:
    """Replicas that go on although the job is over, because it says so; empty where there are none."""
    job = follower.job.job
    names = [member.name for member in follower.progress.members if member.state == RUNNING]
    if job is None or not names or job.run_policy.clean_pods is not CleanPodPolicy.NONE:
        return ""
    verb = "runs" if len(names) == 1 else "run"
    return f"{listed(names)} still {verb}, as cleanPodPolicy is None: deleting the job ends them."


def deciding(job: Known) -> Sequence[Replica]:
    """Whose end is the job's: the chief, worker 0, or all workers where the job says so."""
    if job.job is None or job.job.chief is None:
        return ()
    chief = job.job.chief
    if job.job.success_policy is SuccessPolicy.ALL_WORKERS and chief.type is ReplicaType.WORKER:
        return [Replica(ReplicaType.WORKER, index) for index in range(job.wished.get(ReplicaType.WORKER, 1))]
    return [chief]


def _hint(lines: Iterable[str]) -> None:
    click.echo("\n".join(["", *lines]), err=True)
