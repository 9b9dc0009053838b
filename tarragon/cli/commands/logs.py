"""`tarragon logs`: prints the logs of a job's replicas; on this machine also of ended and deleted jobs."""

from __future__ import annotations

import datetime as dt
import re

import click

from tarragon.cli.jobs.selection import JobArgument
from tarragon.cli.options.arguments import duration, timestamp
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.targets.completion import complete_job, complete_replica, complete_type


def regular_expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a valid regular expression: {error}") from error


@click.command("logs", cls=TarragonCommand)
@click.argument("name", cls=JobArgument, metavar="JOB", shell_complete=complete_job)
@click.option(
    "--replica",
    "replicas",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_replica,
    help="only this replica, such as worker-1, or 1 if that is clear, or launcher; can be repeated",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    shell_complete=complete_type,
    help="only replicas of this type, such as worker; can be repeated",
)
@click.option("-c", "--container", default="", metavar="NAME", help="this container instead of the main one")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    help="only the last N lines of each replica; with --grep, the last N matching lines",
)
@click.option("--since", type=duration, metavar="DURATION", help="only lines newer than this: 30s, 5m, 2h")
@click.option("--since-time", type=timestamp, metavar="TIME", help="only lines after this time: 2026-11-21T12:00:00Z")
@click.option("--grep", type=regular_expression, metavar="REGEX", help="only lines that match REGEX")
@click.option("-f", "--follow", "follows", is_flag=True, help="stream the logs until the job ends")
@click.option("-p", "--previous", is_flag=True, help="the logs from before each replica's last restart")
@click.option(
    "--run",
    "life",
    type=int,
    metavar="N",
    help="the logs of an earlier job of this name: 1 is the oldest, -1 the newest",
)
@click.option("--timestamps", is_flag=True, help="prefix each line with its time")
@click.option("--prefix/--no-prefix", default=True, help="prefix each line with the replica's name, or not")
@click.pass_obj
def command(
    settings: GlobalOptions,
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
    """Print the logs of JOB's replicas, in order of time. On the local cluster also of deleted jobs."""
    if follows and previous:
        raise click.UsageError("--follow can't be used with --previous")
    if follows and life is not None:
        raise click.UsageError("--follow can't be used with --run")
    if since is not None and since_time is not None:
        raise click.UsageError("only one of --since and --since-time may be used")
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.targets.log_filter import LogQuery
    from tarragon.cli.targets.log_reading import print_logs

    clock = SystemClock()
    wanted = LogQuery(
        replicas=frozenset(map(str.lower, replicas)),
        types=frozenset(map(str.lower, types)),
        container=container,
        tail=tail,
        since=since_time if since is None else clock.now() - dt.timedelta(seconds=since),
        previous=previous,
        job_number=life,
        timestamps=timestamps,
        prefix=prefix,
        grep=grep,
    )
    asyncio.run(print_logs(settings, name, wanted, clock if follows else None))
