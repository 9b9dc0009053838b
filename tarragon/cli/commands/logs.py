"""`tarragon logs`: what the replicas of a job have said, also when it has ended, is deleted, or no cluster runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import Iterator, Sequence

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.arguments import duration, instant
from tarragon.cli.completing import complete_job, complete_replica, complete_type
from tarragon.cli.follow.follower import Follower
from tarragon.cli.follow.listening import Listener
from tarragon.cli.jobs import JobName, Known, NoSuchJob, find, parse
from tarragon.cli.kept import Run, Said, lines, runs_of_job, runs_of_name
from tarragon.cli.loglines import Filter, Printer
from tarragon.cli.podlogs import containers, lines_of, pod_logs, unread
from tarragon.cli.settings import Command, Settings
from tarragon.cli.target import Target, target
from tarragon.cli.words import count, listed
from tarragon.cluster.port import Cluster
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.kube.meta import Key

_GONE = "{} keeps no logs of jobs that are deleted: there, a log goes with its pod"


def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from error


@click.command("logs", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option(
    "--replica",
    "replicas",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_replica,
    help="only this one: worker-1; may come again",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    shell_complete=complete_type,
    help="only replicas of this type: chief, ps, worker, evaluator",
)
@click.option("-c", "--container", default="", metavar="NAME", help="of this container, not of the one that trains")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="only the last N lines of each replica")
@click.option("--since", type=duration, metavar="DURATION", help="only what is newer than this: 30s, 5m, 2h")
@click.option("--since-time", type=instant, metavar="TIME", help="only what is newer: 2026-11-21T12:00:00Z")
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
    replicas: tuple[str, ...],
    types: tuple[str, ...],
    container: str,
    tail: int | None,
    since: float | None,
    since_time: dt.datetime | None,
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
    if since is not None and since_time is not None:
        raise click.UsageError("--since and --since-time say the same thing twice; leave one of them out")
    clock = SystemClock()
    wanted = Filter(
        replicas=frozenset(map(str.lower, replicas)),
        types=frozenset(map(str.lower, types)),
        container=container,
        tail=tail,
        since=since_time if since is None else clock.now() - dt.timedelta(seconds=since),
        previous=previous,
        life=life,
        timestamps=timestamps,
        prefix=prefix,
        grep=grep,
    )
    asyncio.run(_logs(settings, name, wanted, clock if follows else None))


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
    found = await pod_logs(cluster, job, wanted.wants, wanted.asked(SystemClock().now()))
    for text in found.notes:
        click.echo(text, err=True)
    printer.kept(lines_of(found, wanted.tail))


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

    listener = Listener(job.framework.main_container, clock, printer.said, wanted.asked(clock.now()))
    listener.only(wanted.wants)
    if wanted.container and wanted.container not in containers(job):
        note(
            f"No replica of {job.name} is to have a container {wanted.container}; there are {listed(containers(job))}."
        )
    listener.on_unread(lambda replica, error: note(unread(replica, error)))
    if not where.is_local and job.status.phase is not Phase.RUNNING:
        note(f"{job.name} is {job.state}: its logs come when its replicas begin.")
    await where.follow(Follower(job, clock, lambda _: None, listener), clock, note)


def _said(runs: Sequence[Run], wanted: Filter) -> Iterator[Said]:
    of_replicas = [run for run in runs if wanted.wants(run.replica)]
    if runs and not of_replicas:
        known = ", ".join(sorted({str(run.replica) for run in runs}))
        raise NoSuchJob("no replica of the job fits --replica and --type", why=f"there are logs of {known}")
    mine = [run for run in of_replicas if wanted.container in {"", run.container}]
    if of_replicas and not mine:
        known = ", ".join(sorted({run.container for run in of_replicas}))
        raise NoSuchJob(f"no replica has a container {wanted.container}", why=f"there are logs of {known}")
    if not wanted.previous:
        return lines(mine, wanted.tail, wanted.since)
    before = _before_last(mine)
    if not before:
        click.echo("no replica has been restarted: there is no run before its last one to read", err=True)
    return lines(before, wanted.tail, wanted.since)


def _before_last(runs: Sequence[Run]) -> Sequence[Run]:
    """Of each container the run before its newest. Runs come in order of time."""
    by_container: dict[tuple[Replica, str], list[Run]] = {}
    for run in runs:
        by_container.setdefault((run.replica, run.container), []).append(run)
    return [of_container[-2] for of_container in by_container.values() if len(of_container) > 1]
