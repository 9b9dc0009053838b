"""Reading what the replicas of a job have said, from a cluster or from this disk, for `tarragon logs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.follower import Follower
from tarragon.cli.jobview.jobs import JobName, Known, NoSuchJob, find, parse
from tarragon.cli.jobview.log_listener import Listener
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.words import count, listed
from tarragon.cli.targets.log_filter import Filter, Printer
from tarragon.cli.targets.pod_logs import containers, lines_of, pod_logs, unread
from tarragon.cli.targets.resolving import target
from tarragon.cli.targets.stored_logs import Run, Said, lines, runs_of_job, runs_of_name
from tarragon.client.port import Cluster
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.kube.meta import Key

_GONE = "{} keeps no logs of jobs that are deleted: there, a log goes with its pod"


async def logs(settings: Settings, name: str, wanted: Filter, following: Clock | None) -> None:
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
    asked = wanted.asked(SystemClock().now())
    if wanted.grep is not None:  # the last lines that fit are not among the last lines
        asked = replace(asked, tail_lines=None)
    found = await pod_logs(cluster, job, wanted.wants, asked)
    for text in found.notes:
        click.echo(text, err=True)
    printer.kept(lines_of(found, wanted.tail, wanted.fits))


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
        return lines(mine, wanted.tail, wanted.since, wanted.fits)
    before = _before_last(mine)
    if not before:
        click.echo("no replica has been restarted: there is no run before its last one to read", err=True)
    return lines(before, wanted.tail, wanted.since, wanted.fits)


def _before_last(runs: Sequence[Run]) -> Sequence[Run]:
    """Of each container the run before its newest. Runs come in order of time."""
    by_container: dict[tuple[Replica, str], list[Run]] = {}
    for run in runs:
        by_container.setdefault((run.replica, run.container), []).append(run)
    return [of_container[-2] for of_container in by_container.values() if len(of_container) > 1]
