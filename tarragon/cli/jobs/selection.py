"""Selects the jobs of a command: by name, by label selector, or all in the namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.words import joined
from tarragon.cli.targets.completion import complete_job, job_names

if TYPE_CHECKING:
    from tarragon.cli.jobview.jobs import ClusterJob, NoSuchJob
    from tarragon.cli.jobview.target import ClusterReader, ClusterTarget

P = ParamSpec("P")
T = TypeVar("T")


class MissingJob(TarragonError):
    """A command was called without the JOB that it needs. Exit code 2, as for any usage error."""

    exit_code = 2


class JobArgument(click.Argument):
    """The argument JOB. If it is missing, the error names the jobs that there are."""

    def process_value(self, ctx: click.Context, value: object) -> object:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter as error:
            if ctx.resilient_parsing:  # completion, which asks for the names itself
                raise
            raise _missing_job(ctx) from error


def _missing_job(ctx: click.Context) -> MissingJob:
    from tarragon.cli.targets.next_commands import command_line
    from tarragon.cli.targets.resolving import resolve_target
    from tarragon.kube.meta import Key

    settings = ctx.ensure_object(GlobalOptions)
    target, names = resolve_target(settings), job_names(settings)

    def command(name: str) -> str:
        return f"`{command_line(target.command_prefix, Key(target.namespace, name), ctx.info_name or '')}`"

    why = f"there {'is' if len(names) == 1 else 'are'} {joined(names, most=5)}" if names else ""
    example = command(names[0]) if len(names) == 1 else f"{command('JOB')}, or {command('@latest')} for the newest"
    return MissingJob("which job?", why=why, remedy=f"type {example}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelection:
    """The selection on the command line; exactly one of the three fields is set."""

    names: Sequence[str] = ()
    labels: str = ""
    is_all: bool = False


def job_selection_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add JOB… as `names`, `-l` as `labels` and `--all` as `everything`."""
    everything = click.option("--all", "everything", is_flag=True, help="select all jobs in the namespace")
    labels = click.option(
        "-l", "--selector", "labels", default="", metavar="LABELS", help="select jobs with these labels: team=vision"
    )
    names = click.argument("names", metavar="[JOB...]", nargs=-1, shell_complete=complete_job)
    return names(labels(everything(command)))


def job_selection(names: Sequence[str], labels: str, *, everything: bool) -> JobSelection:
    """Build a Choice. Raises UsageError unless exactly one way of selecting jobs is used."""
    from tarragon.kube.selectors import parse_label_selector

    if (bool(names) + bool(labels) + everything) != 1:
        raise click.UsageError("exactly one of JOB..., -l LABELS and --all is required")
    try:
        parse_label_selector(labels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error
    return JobSelection(names=names, labels=labels, is_all=everything)


async def select_jobs(
    reader: ClusterReader, wanted: JobSelection, namespace: str
) -> tuple[Sequence[ClusterJob], Sequence[NoSuchJob]]:
    """Return the selected jobs, each once, and an error for each name that was not found."""
    from tarragon.cli.jobview.jobs import NoSuchJob, find_job, list_jobs
    from tarragon.client.port import Selector

    if not wanted.names:
        found = await list_jobs(reader, Selector(namespace=namespace, label_selector=wanted.labels))
        return found, [] if found else [_not_found(wanted, namespace)]
    jobs: dict[str, ClusterJob] = {}
    missing: list[NoSuchJob] = []
    for name in wanted.names:
        try:
            job = await find_job(reader, name, namespace)
        except NoSuchJob as error:
            missing.append(error)
        else:
            jobs[job.uid] = job
    return list(jobs.values()), missing


def note_start(target: ClusterTarget, jobs: Sequence[ClusterJob]) -> None:
    """Notes that the cluster of these jobs does not run: to change them starts it."""
    if any(job.is_offline for job in jobs):
        print_note(f"The cluster {target.name} is not running; starting it.")


def _not_found(wanted: JobSelection, namespace: str) -> NoSuchJob:
    from tarragon.cli.jobview.jobs import NoSuchJob

    which = f" with labels {wanted.labels}" if wanted.labels else ""
    return NoSuchJob(f"no jobs{which} in namespace {namespace}", remedy="`list -A` shows the jobs in all namespaces")
