"""`tarragon run`: submits FILE, follows the job and its logs, and exits with its result."""

from __future__ import annotations

import asyncio

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.commands.submit import submitted
from tarragon.cli.follow.attending import Attendance
from tarragon.cli.follow.verdict import verdict
from tarragon.cli.jobview.target import Target
from tarragon.cli.manifest.dry_run_options import require_trial, show_trial, trial_options
from tarragon.cli.manifest.file_command import FileCommand, changes, one_file
from tarragon.cli.manifest.loading import Loaded, load
from tarragon.cli.options.arguments import duration
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.style import painter
from tarragon.cli.output.terminal import Terminal
from tarragon.cli.targets.completion import complete_file
from tarragon.cli.targets.next_commands import MEANWHILE, hints
from tarragon.cli.targets.resolving import target


@click.command("run", cls=FileCommand)
@click.argument("file", metavar="FILE", required=False, shell_complete=complete_file)
@click.option("-d", "--detach", is_flag=True, help="only submit it")
@click.option("--timeout", "limit", type=duration, metavar="DURATION", help="follow it no longer than this: 90, 5m, 2h")
@trial_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    file: str | None,
    option: str | None,
    detach: bool,
    limit: float | None,
    dry_run: str | None,
    form: str | None,
) -> int:
    """Train the job of FILE, with all it needs, and exit with its result. FILE may be - or a URL.

    \b
    On this machine Ctrl-C stops the job, a second one kills it; on a cluster
    it leaves the job alone, as SIGTERM and SIGHUP (a closed terminal) always do.
    Exit codes: 0 succeeded, 1 an error of ours, 2 problems in FILE, 100 failed,
    101 not finished in time, or left alone, 103 deleted or suspended, 104 evicted,
    130 killed by a second Ctrl-C, 141 nobody reads the logs any more (run | head),
    143 or 129 ended by SIGTERM or SIGHUP
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    require_trial(dry_run, form)
    settings = ctx.ensure_object(Settings)
    where = target(settings)
    loaded = load(where, settings, one_file(file, option), changes(ctx))
    if dry_run is not None:
        show_trial(where, [loaded], dry_run, form)
        return 0
    if not detach:
        return asyncio.run(attended(where, settings.terminal(), loaded, limit))
    job = asyncio.run(submitted(where, loaded, SystemClock(), is_once=True))
    click.echo(job.name)
    click.echo("\n".join(hints(where.prompt, job.address, MEANWHILE)), err=True)
    return 0


async def attended(
    where: Target, terminal: Terminal, loaded: Loaded, limit: float | None, *, is_once: bool = False
) -> int:
    """Its result as exit code. `is_once`: one that is there already is followed, not refused."""
    clock = SystemClock()
    job = await submitted(where, loaded, clock, is_once=is_once)
    attendance = Attendance(job, where, terminal, clock)
    how = await attendance.attend(limit)
    return verdict(attendance, how, limit, painter(colors=terminal.colors_out))
