"""`tarragon logs`: what the replicas of a job have said, also when it has ended, is deleted, or no cluster runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.arguments import complete_job, duration
from tarragon.cli.follow.follower import Follower
from tarragon.cli.follow.lines import shown
from tarragon.cli.follow.listening import Listener
from tarragon.cli.jobs import JobName, Known, NoSuchJob, find, parse
from tarragon.cli.kept import Run, Said, lines, runs_of_job, runs_of_name
from tarragon.cli.podlogs import lines_of, pod_logs, unread
from tarragon.cli.settings import Command, Settings
from tarragon.cli.style import REPLICA_TYPES, painter
from tarragon.cli.target import Target, target
from tarragon.cli.terminal import Sink, sink
from tarragon.cli.words import count
from tarragon.cluster.port import Cluster, LogOptions
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.kube.meta import Key

_GONE = "{} keeps no logs of jobs that are deleted: there, a log goes with its pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which replicas and lines, and how they are printed."""

    replica: str = ""
    type: str = ""
    tail: int | None = None
    since: float | None = None
    previous: bool = False
    life: int | None = None
    """Which of the jobs that had the name, from 1; from the newest if negative."""
    timestamps: bool = False
    prefix: bool = True
    grep: re.Pattern[str] | None = None

    def wants(self, replica: Replica) -> bool:
        return self.replica in {"", str(replica)} and self.type in {"", replica.type.word}


class Printer:
    """Prints lines to stdout. On a terminal they can't move the cursor."""

    def __init__(self, wanted: Filter, settings: Settings) -> None:
        terminal = settings.terminal()
        self._wanted = wanted
        self._colors = terminal.colors_out
        self._paint = painter(colors=terminal.colors_out)
        self._is_terminal = sink(sys.stdout) is Sink.TERMINAL

    def said(self, replica: Replica, said: Sequence[tuple[str, str]]) -> None:
        if self._wanted.wants(replica):
            sys.stdout.write("".join(self._line(replica, moment, text) for moment, text in said))
            sys.stdout.flush()

    def kept(self, said: Iterator[Said]) -> None:
        for line in said:
            sys.stdout.write(self._line(line.replica, line.moment, line.text))

    def _line(self, replica: Replica, moment: str, text: str) -> str:
        if self._wanted.grep is not None and not self._wanted.grep.search(text):
            return ""
        words = [shown(text, colors=self._colors) if self._is_terminal else text]
        if self._wanted.timestamps:
            words.insert(0, moment)
        if self._wanted.prefix:
            words.insert(0, self._paint(f"[{replica}]", REPLICA_TYPES.get(replica.type.word, "")))
        return " ".join(words) + "\n"


def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from error


@click.command("logs", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option("--replica", default="", help="only this one: worker-1")
@click.option("--type", default="", help="only replicas of this type: chief, ps, worker, evaluator")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="only the last N lines of each replica")
@click.option("--since", type=duration, metavar="DURATION", help="only what is newer than this: 30s, 5m, 2h")
@click.option("--grep", type=pattern, metavar="REGEX", help="only lines in which this is found")
@click.option("-f", "--follow", "follows", is_flag=True, help="go on until the job has ended")
@click.option("-p", "--previous", is_flag=True, help="of each replica the run before its last restart")
@click.option(
    "--run", "life", type=int, metavar="N", help="of an earlier job of that name: 1 is the oldest, -1 the newest"
)
@click.option("--timestamps", is_flag=True, help="with the moment of each line")
@click.option("--prefix/--no-prefix", default=True, help="with or without the replica's name")
@click.pass_obj
def command(
    settings: Settings,
    *,
    name: str,
    replica: str,
    type: str,  # noqa: A002 - the option's name
    tail: int | None,
    since: float | None,
    grep: re.Pattern[str] | None,
    follows: bool,
    previous: bool,
    life: int | None,
    timestamps: bool,
    prefix: bool,
) -> None:
    """What the replicas of JOB have said, in order of time; of a deleted job, too."""
    if follows and previous:
        raise click.UsageError("the run before the last restart has ended: there is nothing to follow")
    if follows and life is not None:
        raise click.UsageError("--run reads what is kept: there is nothing to follow")
    wanted = Filter(
        replica=replica.lower(),
        type=type.lower(),
        tail=tail,
        since=since,
        previous=previous,
        life=life,
        timestamps=timestamps,
        prefix=prefix,
        grep=grep,
    )
    asyncio.run(_logs(settings, name, wanted, SystemClock() if follows else None))


async def _logs(settings: Settings, name: str, wanted: Filter, following: Clock | None) -> None:
    """With a clock it goes on until the job is over."""
    printer, where = Printer(wanted, settings), target(settings)
    if wanted.life is not None and where.nodes is None:
        raise TarragonError(
            f"{where.name} keeps no logs of earlier jobs",
            why="there, a log goes with its pod",
            remedy="leave out --run: what the newest job has said is there as long as its pods are",
        )
    async with where.looking() as looker:
        try:
            job = await find(looker, name, where.namespace)
        except NoSuchJob as error:
            if where.nodes is None:
                raise NoSuchJob(error.what, why=_GONE.format(where.name), remedy=error.remedy) from error
            printer.kept(_kept_of_name(where, name, wanted))
            return
    if wanted.life is not None:
        lives = runs_of_name(where.nodes, _named(job), job.key.namespace)
        printer.kept(_said(_life(lives, job.key, wanted.life), wanted))
    elif following is not None and not job.status.phase.is_final:
        await _follow(where, job, following, wanted, printer)
    elif where.nodes is None:
        async with where.watching() as cluster:
            await _asked(cluster, job, wanted, printer)
    else:
        runs = runs_of_job(where.nodes, job)
        lives = runs_of_name(where.nodes, _named(job), job.key.namespace)
        _tell_earlier(job.key.name, len(lives) - bool(runs))
        printer.kept(_said(runs, wanted))


async def _asked(cluster: Cluster, job: Known, wanted: Filter, printer: Printer) -> None:
    """What the cluster's pods have said until now."""
    found = await pod_logs(cluster, job, wanted.wants, log_options(wanted))
    for text in found.notes:
        click.echo(text, err=True)
    printer.kept(lines_of(found, wanted.tail))


def log_options(wanted: Filter) -> LogOptions:
    """What the cluster can leave out for us."""
    since = None if wanted.since is None else max(1, int(wanted.since))
    return LogOptions(tail_lines=wanted.tail, since_seconds=since, previous=wanted.previous)


def _named(job: Known) -> JobName:
    return JobName((job.framework,), job.key.name)


def _kept_of_name(where: Target, name: str, wanted: Filter) -> Iterator[Said]:
    """Of a job that is not there any more. Raises NoSuchJob when nothing was ever heard of it."""
    named = parse(name)
    lives = runs_of_name(where.nodes, named, where.namespace)
    if not lives:
        raise NoSuchJob(
            f'there is no job "{name}" in namespace {where.namespace}, and no log of one',
            remedy="`list -A` shows all there are",
        )
    click.echo(f"{name} is deleted; these logs were kept.", err=True)
    if wanted.life is None:
        _tell_earlier(named.name, len(lives) - 1)
    return _said(_life(lives, Key(where.namespace, named.name), -1 if wanted.life is None else wanted.life), wanted)


def _life(lives: Sequence[Sequence[Run]], key: Key, number: int) -> Sequence[Run]:
    """Raises NoSuchJob for one that is not kept."""
    if number == 0 or abs(number) > len(lives):
        kept = f"{count(len(lives), 'run')} of {key.name} {'is' if len(lives) == 1 else 'are'} kept"
        raise NoSuchJob(f"there is no run {number} of {key.name}", why=kept, remedy="1 is the oldest, -1 the newest")
    return lives[number - 1 if number > 0 else number]


def _tell_earlier(name: str, earlier: int) -> None:
    if earlier > 0:
        verb = "is" if earlier == 1 else "are"
        click.echo(f"{count(earlier, 'earlier run')} of {name} {verb} kept: `--run 1` reads the oldest.", err=True)


async def _follow(where: Target, job: Known, clock: Clock, wanted: Filter, printer: Printer) -> None:
    def note(text: str) -> None:
        click.echo(text, err=True)

    listener = Listener(job.framework.main_container, clock, printer.said, log_options(wanted))
    listener.on_unread(lambda replica, error: note(unread(replica, error)))
    if not where.is_local and job.status.phase is not Phase.RUNNING:
        note(f"{job.name} is {job.state}: its logs come when its replicas begin.")
    await where.follow(Follower(job, clock, lambda _: None, listener), clock, note)


def _said(runs: Sequence[Run], wanted: Filter) -> Iterator[Said]:
    since = None if wanted.since is None else SystemClock().now() - dt.timedelta(seconds=wanted.since)
    mine = [run for run in runs if wanted.wants(run.replica)]
    if runs and not mine:
        known = ", ".join(sorted({str(run.replica) for run in runs}))
        raise NoSuchJob("no replica of the job fits --replica and --type", why=f"there are logs of {known}")
    if not wanted.previous:
        return lines(mine, wanted.tail, since)
    before = _before_last(mine)
    if not before:
        click.echo("no replica has been restarted: there is no run before its last one to read", err=True)
    return lines(before, wanted.tail, since)


def _before_last(runs: Sequence[Run]) -> Sequence[Run]:
    """Of each container the run before its newest. Runs come in order of time."""
    by_container: dict[tuple[Replica, str], list[Run]] = {}
    for run in runs:
        by_container.setdefault((run.replica, run.container), []).append(run)
    return [of_container[-2] for of_container in by_container.values() if len(of_container) > 1]
