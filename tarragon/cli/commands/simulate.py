"""`tarragon simulate`: shows what scheduling policies do with a workload, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tarragon.cli.options.arguments import duration
from tarragon.cli.options.durations import seconds_option
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.targets.completion import complete_file
from tarragon.scheduling.api.rules import DEFAULT_POLICY, POLICY_NAMES
from tarragon.simulator.baselines.names import BASELINE_NAMES

if TYPE_CHECKING:
    from tarragon.cli.explain.what_if import WhatIf, WhatIfResult
    from tarragon.simulator.comparison import Comparison
    from tarragon.simulator.engine import SimulatedCluster
    from tarragon.simulator.lower_bounds import LowerBounds
    from tarragon.simulator.results import PolicyResult
    from tarragon.simulator.workload import BoundsRule, Workload

_POLICIES = f"{', '.join(POLICY_NAMES)} of the operator, and in the simulator only {', '.join(BASELINE_NAMES)}"
MIN_INTERVAL = 1.0
DEFAULT_PACKER = "backfill"
"""With tasks that never end, all policies pack alike, but `elastic` and `dragon` would look for more to do."""
_OF_CLUSTER = frozenset({"from_cluster", "add_nodes", "remove", "submit", "run_time"})
"""The parameters that belong to --from-cluster."""
_OF_BOTH = frozenset({"policies", "form", "context", "kubeconfig", "namespace", "verbose", "color"})
_OF_PACKING = frozenset({"trace", "packing", "cluster_file", "seed"})
"""The parameters that --packing goes with."""
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("simulate", cls=TarragonCommand)
@click.argument("trace", metavar="[TRACE]", type=_FILE, required=False)
@click.option("--from-cluster", is_flag=True, help="take the nodes and the jobs of the cluster of the context, as now")
@click.option(
    "--add-nodes",
    metavar="COUNTxNODE",
    multiple=True,
    help="with --from-cluster: as if there were so many more nodes like NODE, or with these amounts: "
    "4xnvidia.com/gpu=8,gpu-memory=16Gi,cpu=32; may be repeated",
)
@click.option(
    "--remove", metavar="NODE", multiple=True, help="with --from-cluster: as if this node were gone; may be repeated"
)
@click.option(
    "--submit",
    metavar="FILE",
    multiple=True,
    shell_complete=complete_file,
    help="with --from-cluster: as if FILE were submitted; may be repeated",
)
@click.option(
    "--run-time",
    metavar="DURATION",
    type=duration,
    help="with --from-cluster: how long jobs run of which nothing is known, as 2h",
)
@click.option("--speedups", metavar="FILE", type=_FILE, help="table of measured speeds, for traces that need one")
@click.option("--nodes", type=click.IntRange(1, 100_000), default=16, show_default=True, help="number of nodes")
@click.option("--gpus-per-node", type=click.IntRange(1, 1024), default=4, show_default=True, help="GPUs of each node")
@click.option(
    "--cluster", "cluster_file", metavar="FILE", type=_FILE, help="nodes of other sizes: YAML, also of kubectl, or CSV"
)
@click.option("--nodes-from-cluster", is_flag=True, help="take the nodes of the cluster of the context")
@click.option(
    "--bounds",
    type=click.Choice(("trace", "rigid", "spec", "wide")),
    default="trace",
    show_default=True,
    help="sizes that jobs may have: those of the trace, as requested, from a quarter to twice of that, or 1 to 64",
)
@click.option(
    "--policy", "policies", metavar="NAME", multiple=True, help=f"policy to simulate; may be repeated: {_POLICIES}"
)
@click.option(
    "--progress",
    type=click.Choice(("reported", "none")),
    default="reported",
    show_default=True,
    help="whether jobs report their progress",
)
@click.option(
    "--resize",
    type=click.Choice(("in-place", "restart")),
    default="in-place",
    show_default=True,
    help="how jobs take another size, which policies heed",
)
@click.option("--load", type=click.FloatRange(0), default=1.0, show_default=True, help="load of a Pollux trace")
@click.option("--workload", "workloads", metavar="N", type=int, multiple=True, help="workload of a Pollux trace; all")
@click.option("--days", type=click.FloatRange(0, min_open=True), help="only jobs submitted in the first days")
@click.option("--max-duration", metavar="DURATION", type=duration, help="cut longer jobs to this run time, as 24h")
@seconds_option("--restart-seconds", 30.0, "time without progress after a start or resize")
@seconds_option("--interval", 60.0, "the policy is asked at least this often")
@click.option("--seed", type=int, default=1, show_default=True, help="seed of the policies that decide by chance")
@click.option(
    "--packing",
    is_flag=True,
    help="how much of the GPUs of --cluster is allocated to TRACE's tasks and parts of GPUs (openb), if none ends",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="write a page with charts to this HTML file",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(("table", "json", "csv")), default="table", help="output format; table"
)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    trace: Path | None,
    from_cluster: bool,
    add_nodes: Sequence[str],
    remove: Sequence[str],
    submit: Sequence[str],
    run_time: float | None,
    speedups: Path | None,
    nodes: int,
    gpus_per_node: int,
    cluster_file: Path | None,
    nodes_from_cluster: bool,
    bounds: BoundsRule,
    policies: Sequence[str],
    progress: str,
    resize: str,
    load: float,
    workloads: Sequence[int],
    days: float | None,
    max_duration: float | None,
    restart_seconds: float,
    interval: float,
    seed: int,
    packing: bool,
    report: Path | None,
    form: str,
) -> None:
    """Show what policies of the operator do with the jobs of TRACE, in virtual time. Nothing is changed anywhere.

    TRACE is a CSV file, or one in gzip, with the columns name, submit_s, replicas, duration_s (run time alone), and
    optionally gpus (of each replica), minimum and maximum (replicas), kind, queue, parallel (the part of the job that
    more replicas speed up). `tarragon export-trace` writes one. Traces of Pollux, Philly and openb are recognized.

    With --packing, tasks that ask for whole GPUs and for parts of one are submitted in random order and never end; one
    that does not fit is dropped.

    With --from-cluster instead of TRACE, show when the jobs that wait now would start and end, and what other nodes,
    policies or jobs would change.
    """
    settings = ctx.ensure_object(GlobalOptions)
    _require_fitting_options(ctx, trace, from_cluster)
    if trace is None:
        from tarragon.cli.explain.what_if import what_if_of

        asked = what_if_of(added=add_nodes, removed=remove, files=submit, policies=policies, run_time=run_time)
        _print_what_if(settings, asked, form)
        return
    if packing:
        chosen = [_packer(name) for name in policies]
        _print_packings(trace, cluster_file, policies=chosen, seed=seed, form=form, settings=settings)
        return
    from tarragon.cli.simulation.figures import summaries_of, table_rows
    from tarragon.simulator.comparison import Comparison
    from tarragon.simulator.engine import SimulatedCluster, Timing
    from tarragon.simulator.lower_bounds import lower_bounds, why_no_lp
    from tarragon.simulator.traces.reading import Selection, read_speeds, read_workloads

    chosen = [_known(name) for name in policies or (DEFAULT_POLICY,)]
    cluster = _cluster(settings, cluster_file, nodes_from_cluster) or SimulatedCluster.of_equal(nodes, gpus_per_node)
    selection = Selection(
        load=load,
        workloads=workloads,
        days=days or math.inf,
        max_duration=max_duration or math.inf,
        speeds=read_speeds(speedups, "fixed") if speedups else {},
        devices_per_node=cluster.largest_node,
    )
    found = _bounded(read_workloads(trace, selection), bounds)
    _require_room(found, cluster)
    _require_folder(report)
    comparison = Comparison(
        workloads=found,
        cluster=cluster,
        timing=Timing(restart=restart_seconds, interval=_positive(interval)),
        is_progress_reported=progress == "reported",
        resizes_by_restart=resize == "restart",
        seed=seed,
    )
    least = lower_bounds(found, cluster, restart_seconds)
    results = [_run(comparison, name, settings) for name in dict.fromkeys(chosen)]
    if report:
        _write_report(report, f"Simulation of {trace.name}", table_rows(summaries_of(results), least), results)
    _print_results(results, least, form, settings)
    if reason := why_no_lp(found):
        print_note(f"without the bound by linear programming: {reason}")


def _print_results(results: Sequence[PolicyResult], least: LowerBounds, form: str, settings: GlobalOptions) -> None:
    from tarragon.cli.options.formats import json_text, print_table
    from tarragon.cli.simulation.figures import csv_text, json_object, summaries_of, table_rows

    summaries = summaries_of(results)
    if form == "json":
        click.echo(json_text(json_object(summaries, least)))
    elif form == "csv":
        click.echo(csv_text(summaries, least), nl=False)
    else:
        print_table(table_rows(summaries, least), settings)


def _require_simulator() -> None:
    from tarragon.cli.targets.extras import SIMULATE, require_extra

    require_extra(SIMULATE, "the simulator")


def _require_fitting_options(ctx: click.Context, trace: Path | None, from_cluster: bool) -> None:
    """Raise UsageError for options that do not go together: each belongs to a TRACE or to --from-cluster."""
    if trace is not None and from_cluster:
        raise click.UsageError("TRACE and --from-cluster both say which jobs there are; use one of them")
    if trace is None and not from_cluster:
        raise click.UsageError("nothing to simulate: name a TRACE, or use --from-cluster for the jobs of your cluster")
    given = [
        param
        for param in ctx.command.params
        if ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE and param.name not in _OF_BOTH
    ]
    for param in given:
        if ctx.params["packing"] and param.name not in _OF_PACKING:
            raise click.UsageError(f"{param.opts[0]} does not go with --packing: nothing runs or ends")
        if from_cluster and param.name not in _OF_CLUSTER:
            raise click.UsageError(f"{param.opts[0]} needs a TRACE; --from-cluster takes what there is in the cluster")
        if not from_cluster and param.name in _OF_CLUSTER:
            raise click.UsageError(f"{param.opts[0]} needs --from-cluster")
    if from_cluster and ctx.params.get("form") == "csv":
        raise click.UsageError("--from-cluster has no CSV; use -o json")
    _require_simulator()


def _print_packings(
    trace: Path, nodes: Path | None, *, policies: Sequence[str], seed: int, form: str, settings: GlobalOptions
) -> None:
    from tarragon.cli.simulation.packing_output import print_packings, print_packings_as_json
    from tarragon.simulator.packing import PACKING_BASELINES

    if nodes is None:
        raise click.UsageError("--packing needs --cluster with openb's table of nodes: sn, cpu_milli, memory_mib, gpu")
    if form == "csv":
        raise click.UsageError("--packing has no CSV; use -o json")
    chosen = list(dict.fromkeys(policies or (DEFAULT_PACKER, *PACKING_BASELINES)))
    show = print_packings_as_json if form == "json" else print_packings
    show(trace, nodes, chosen, seed, settings)


def _packer(name: str) -> str:
    """Return the name of a policy that can pack. Raises BadParameter for others."""
    from tarragon.simulator.packing import PACKING_BASELINES

    known = (*POLICY_NAMES, *PACKING_BASELINES)
    if name not in known:
        raise click.BadParameter(f"{name!r} does not pack; it is one of {', '.join(known)}", param_hint="'--policy'")
    return name


def _print_what_if(settings: GlobalOptions, asked: WhatIf, form: str) -> None:
    """Print what becomes of the queue of the cluster, and what would."""
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.explain.what_if import ask_what_if, load_jobs
    from tarragon.cli.explain.what_if_output import WhatIfReport
    from tarragon.cli.jobview.schema import document
    from tarragon.cli.options.formats import json_text, print_lines, print_table
    from tarragon.cli.targets.resolving import resolve_target

    target = resolve_target(settings)
    jobs = load_jobs(target, settings, asked)
    for note in dict.fromkeys(note for job in jobs for note in job.notes):
        print_note(note)

    async def ask() -> WhatIfResult:
        async with target.watching() as reader:
            return await ask_what_if(reader, target, asked, jobs, SystemClock())

    report = WhatIfReport(result=asyncio.run(ask()), namespace=target.namespace)
    if form == "json":
        click.echo(json_text(document("WhatIf", report.fields())))
        return
    if len(rows := report.table_rows()) > 1:
        print_table(rows, settings)
        click.echo()
    print_lines(report.summary_lines())
    for note in report.notes():
        print_note(note)
    print_note(f"this is a simulation: nothing was changed on {target.name}")


def _known(name: str) -> str:
    """Return the name of a policy. Raises BadParameter, with a suggestion, for one that does not exist."""
    from difflib import get_close_matches

    known = (*POLICY_NAMES, *BASELINE_NAMES)
    if name in known:
        return name
    matches = get_close_matches(name, known, 1)
    remedy = f"did you mean {matches[0]}?" if matches else f"it is one of {_POLICIES}"
    raise click.BadParameter(f"{name!r} is not a policy; {remedy}", param_hint="'--policy'")


def _cluster(settings: GlobalOptions, file: Path | None, nodes_from_cluster: bool) -> SimulatedCluster | None:
    from tarragon.simulator.traces.clusters import read_cluster

    if file and nodes_from_cluster:
        raise click.UsageError("--cluster and --nodes-from-cluster both say which nodes there are; use one of them")
    if nodes_from_cluster:
        import asyncio

        from tarragon.cli.simulation.nodes import nodes_of_context

        return asyncio.run(nodes_of_context(settings))
    return read_cluster(file) if file else None


def _positive(interval: float) -> float:
    if interval < MIN_INTERVAL:
        raise click.BadParameter(f"{interval:g} is not {MIN_INTERVAL:g} s or more", param_hint="'--interval'")
    return interval


def _run(comparison: Comparison, name: str, settings: GlobalOptions) -> PolicyResult:
    from tarragon.cli.simulation.progress_bar import progress_bar

    with progress_bar(name, sum(len(workload.jobs) for workload in comparison.workloads), settings) as advance:
        return comparison.run(name, advance)


def _bounded(workloads: Sequence[Workload], bounds: BoundsRule) -> Sequence[Workload]:
    from dataclasses import replace

    from tarragon.simulator.workload import with_bounds

    return [replace(each, jobs=[with_bounds(job, bounds) for job in each.jobs]) for each in workloads]


def _require_room(workloads: Sequence[Workload], cluster: SimulatedCluster) -> None:
    """Raise TarragonError if a job can't run on the empty cluster: it would wait for ever."""
    from tarragon.base.errors import TarragonError

    for job in (job for workload in workloads for job in workload.jobs):
        if job.devices > cluster.largest_node:
            most = cluster.largest_node
            raise TarragonError(
                f"each replica of {job.name} needs {job.devices} GPUs, and no node has more than {most}",
                remedy="use larger nodes (--gpus-per-node)",
            )
        if job.minimum > cluster.room(job.devices):
            raise TarragonError(
                f"{job.name} needs at least {job.minimum * job.devices} GPUs, and the cluster has {cluster.devices}",
                remedy="use more nodes (--nodes), larger ones (--gpus-per-node) or elastic jobs (--bounds spec)",
            )


def _require_folder(report: Path | None) -> None:
    """Raise TarragonError before hours are simulated for a report that has no folder."""
    from tarragon.base.errors import TarragonError

    if report and not report.parent.is_dir():
        raise TarragonError(f"can't write the report {report}", why=f"there is no folder {report.parent}")


def _write_report(path: Path, title: str, rows: Sequence[Sequence[str]], results: Sequence[PolicyResult]) -> None:
    """Write the page. Raises TarragonError if that fails."""
    from tarragon.base.errors import TarragonError
    from tarragon.simulator.report.page import page

    try:
        path.write_text(page(title, rows, results))
    except OSError as error:
        raise TarragonError(f"can't write the report {path}", why=error.strerror or str(error)) from error
