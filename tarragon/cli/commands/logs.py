"""`tarragon logs`: what the replicas of a job have said, also when it has ended, is deleted, or no cluster runs."""

from __future__ import annotations

import datetime as dt
import re

import click

from tarragon.cli.options.arguments import duration, instant
from tarragon.cli.options.settings import Command, Settings
from tarragon.cli.targets.completion import complete_job, complete_replica, complete_type


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
    metavar="TYPE",
    shell_complete=complete_type,
    help="only replicas of this type: chief, ps, worker, evaluator; may come again",
)
@click.option("-c", "--container", default="", metavar="NAME", help="of this container, not of the one that trains")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    help="only the last N lines of each replica; with --grep, the last N of those",
)
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
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.targets.log_filter import Filter
    from tarragon.cli.targets.log_reading import logs

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
    asyncio.run(logs(settings, name, wanted, clock if follows else None))
