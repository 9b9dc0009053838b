"""`tarragon submit`: submits the jobs of a manifest, and optionally waits until the job has ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.jobs.running import RunOptions, run_attached, submit_detached, submit_job
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.dry_run_options import (
    dry_run_options,
    print_dry_run,
    require_dry_run,
    resolve_submission_target,
)
from tarragon.cli.manifest.file_command import FileCommand, file_input
from tarragon.cli.manifest.loading import LoadedJob, load_all
from tarragon.cli.options.arguments import duration
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.completion import complete_file
from tarragon.cli.targets.next_commands import WHILE_RUNNING, next_commands

CONFIRM_ABOVE_GPUS = 8
"""A job that asks for more GPUs needs confirmation: this is one of the largest nodes of cloud providers."""


@click.command("submit", cls=FileCommand)
@click.argument("words", metavar="FILE [-- ARGS]", nargs=-1, shell_complete=complete_file)
@click.option("--wait", "waits", is_flag=True, help="wait until the job ends, and exit with its result")
@click.option("--watch", "watches", is_flag=True, help="like --wait, and print a line for every change")
@click.option("--logs", "reads", is_flag=True, help="like --wait, and follow the logs, as `run` does")
@click.option("--timeout", "limit", type=duration, metavar="DURATION", help="stop waiting after this long: 90, 5m, 2h")
@click.option("-y", "--yes", is_flag=True, help="do not ask for confirmation")
@click.option(
    "--confirm-above",
    type=click.IntRange(0),
    default=CONFIRM_ABOVE_GPUS,
    show_default=True,
    metavar="GPUS",
    help="on a cluster: ask for confirmation if the jobs request more GPUs than this",
)
@dry_run_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    words: Sequence[str],
    option: str | None,
    waits: bool,
    watches: bool,
    reads: bool,
    limit: float | None,
    yes: bool,
    confirm_above: int,
    dry_run: str | None,
    form: str | None,
) -> int:
    """Submit the jobs of FILE and the objects they need, and print their names. FILE may be -, a URL, or a
    script, as for `run`.

    Submitting an unchanged job again has no effect. A job that has ended is run again on this machine, where its
    logs are kept; on a cluster only with --replace.

    \b
    Exit codes: 0 submitted, or unchanged; 1 error, or another job has this name;
                2 invalid FILE; with --wait, --watch or --logs those of `run`
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    require_dry_run(dry_run, form)
    stays = waits or watches or reads
    if limit is not None and not stays:
        raise click.UsageError("--timeout requires --wait, --watch or --logs")
    settings = ctx.ensure_object(GlobalOptions)
    target = resolve_submission_target(settings, dry_run)
    given = file_input(ctx, words, option)
    loaded = load_all(target, settings, given.name, given.changes)
    if dry_run is not None:
        print_dry_run(target, loaded, dry_run, form)
        return 0
    if stays and len(loaded) > 1:
        raise click.UsageError(f"--wait, --watch and --logs need a FILE with one job; it has {len(loaded)}")
    confirm_large_jobs(target, loaded, confirm_above, is_agreed=yes)
    clock = SystemClock()
    if reads:
        return asyncio.run(run_attached(target, settings.terminal(), loaded[0], RunOptions(limit=limit, is_once=True)))
    submitting = partial(submit_job, is_once=True) if stays else submit_detached
    jobs = [asyncio.run(submitting(target, each, clock)) for each in loaded]
    for job in jobs:
        click.echo(job.name)
    if stays:
        from tarragon.cli.follow.awaiting import WaitGoal
        from tarragon.cli.follow.progress_output import OutputStreams
        from tarragon.cli.follow.waiting import wait_and_report

        terminal = settings.terminal()
        streams = OutputStreams(out=sys.stdout, err=sys.stderr, terminal=terminal, now=clock.now) if watches else None
        return asyncio.run(wait_and_report(target, jobs[:1], WaitGoal(limit=limit, changes=streams)))
    print_note(
        "\n".join(hint for job in jobs for hint in next_commands(target.command_prefix, job.command_key, WHILE_RUNNING))
    )
    return 0


def confirm_large_jobs(target: ClusterTarget, loaded: Sequence[LoadedJob], most_gpus: int, *, is_agreed: bool) -> None:
    """Print the size of a large job and, on a terminal, ask for confirmation. Raises Abort if the user declines."""
    if target.is_local:
        return  # this machine costs nothing
    from tarragon.cli.manifest.sizing import is_large, size_table, training_jobs

    jobs = training_jobs(loaded)
    if not is_large(jobs, most_gpus):
        return
    asks = not is_agreed and sys.stdin.isatty() and sys.stderr.isatty()
    for line in size_table(jobs):
        click.echo(line, err=True) if asks else print_note(line)
    if asks:
        click.confirm(f"Submit this to {target.name}?", abort=True, err=True)
