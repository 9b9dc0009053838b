"""`tarragon run`: submits a job, follows its logs, and exits with its result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.jobs.running import RunOptions, run_attached, submit_detached
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.manifest.dry_run_options import (
    dry_run_options,
    print_dry_run,
    require_dry_run,
    resolve_submission_target,
)
from tarragon.cli.manifest.file_command import FileCommand, file_input
from tarragon.cli.manifest.loading import LoadedJob, load
from tarragon.cli.manifest.submission import allow_replacing
from tarragon.cli.options.arguments import duration
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.targets.completion import complete_file
from tarragon.cli.targets.next_commands import WHILE_RUNNING, next_commands
from tarragon.client.port import Client
from tarragon.kube.core import NODES


@click.command("run", cls=FileCommand)
@click.argument("words", metavar="FILE [-- ARGS]", nargs=-1, shell_complete=complete_file)
@click.option("-d", "--detach", is_flag=True, help="submit the job and return")
@click.option(
    "--timeout", "limit", type=duration, metavar="DURATION", help="stop following after this long: 90, 5m, 2h"
)
@click.option(
    "--keep-pods", "keeps_pods", is_flag=True, help="on this machine: leave replicas running that outlive the job"
)
@dry_run_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    words: Sequence[str],
    option: str | None,
    detach: bool,
    limit: float | None,
    keeps_pods: bool,
    dry_run: str | None,
    form: str | None,
) -> int:
    """Submit the job of FILE, follow its logs, and exit with its result. FILE may be - or a URL.

    FILE may also be a script, .py or .sh, which becomes a job: `run train.py --workers 4 -- --epochs 3`. With
    --dry-run it prints that job. On a cluster, the script and the modules beside it travel in a ConfigMap.

    \b
    On this machine Ctrl-C stops the job, and a second Ctrl-C kills it; when the
    job has its result, replicas that do not end by themselves are ended. On a
    cluster the job continues, as it does after SIGTERM and SIGHUP (a closed
    terminal). To follow one replica only: `run -d FILE`, then
    `logs -f JOB --replica worker-1`.
    Exit codes: 0 succeeded, 1 error, 2 invalid FILE, 100 failed,
    101 timed out, or detached by Ctrl-C, 103 deleted or suspended, 104 evicted,
    105 can never start on this machine,
    130 stopped by Ctrl-C on this machine, 141 output closed (run | head),
    143 or 129 ended by SIGTERM or SIGHUP
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    require_dry_run(dry_run, form)
    settings = ctx.ensure_object(GlobalOptions)
    where = resolve_submission_target(settings, dry_run)
    given = file_input(ctx, words, option)
    loaded = load(where, settings, given.name, given.changes)
    if dry_run is not None:
        print_dry_run(where, [loaded], dry_run, form)
        return 0
    before_replacing = _require_possible if where.is_local else allow_replacing
    if not detach:
        wanted = RunOptions(
            limit=limit,
            ends_pods=where.is_local and not keeps_pods,
            deletes_unplaceable=where.is_local,
            before_replacing=before_replacing,
        )
        return asyncio.run(run_attached(where, settings.terminal(), loaded, wanted))
    job = asyncio.run(submit_detached(where, loaded, SystemClock(), before_replacing))
    click.echo(job.name)
    print_note("\n".join(next_commands(where.command_prefix, job.command_key, WHILE_RUNNING)))
    return 0


async def _require_possible(cluster: Client, loaded: LoadedJob, former: ClusterJob, clock: Clock) -> None:
    """Raises ImpossibleJob, so that the earlier job is kept, if this machine can never start the new one."""
    from tarragon.cli.manifest.quick_feasibility import may_lack_nodes, surely_fit
    from tarragon.cli.manifest.sizing import training_jobs

    jobs = training_jobs([loaded])
    if not may_lack_nodes(jobs) or surely_fit(jobs, (await cluster.list(NODES)).items):
        return
    from tarragon.cli.explain.impossible_jobs import require_possible

    await require_possible(cluster, loaded, former, clock)
