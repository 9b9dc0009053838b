"""Which jobs a change is about: named ones, those with some labels, or all of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from tarragon.cli.targets.completion import complete_job

if TYPE_CHECKING:
    from tarragon.cli.jobview.jobs import Known, NoSuchJob
    from tarragon.cli.jobview.target import Looker

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """As the command line has it: exactly one of the three."""

    names: Sequence[str] = ()
    labels: str = ""
    is_all: bool = False


def choice_options(command: Callable[P, T]) -> Callable[P, T]:
    """JOB… as `names`, `-l` as `labels`, `--all` as `everything`."""
    everything = click.option("--all", "everything", is_flag=True, help="all jobs of the namespace")
    labels = click.option(
        "-l", "--selector", "labels", default="", metavar="LABELS", help="all jobs with these labels: team=vision"
    )
    names = click.argument("names", metavar="[JOB...]", nargs=-1, shell_complete=complete_job)
    return names(labels(everything(command)))


def choice(names: Sequence[str], labels: str, *, everything: bool) -> Choice:
    """Raises UsageError unless it says in one way which jobs are meant."""
    from tarragon.kube.selectors import label_selector

    if (bool(names) + bool(labels) + everything) != 1:
        raise click.UsageError("name one JOB or more, or choose them by -l LABELS, or --all")
    try:
        label_selector(labels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error
    return Choice(names=names, labels=labels, is_all=everything)


async def chosen(looker: Looker, wanted: Choice, namespace: str) -> tuple[Sequence[Known], Sequence[NoSuchJob]]:
    """Each once, and what was not found: one that is not there keeps none of the others."""
    from tarragon.cli.jobview.jobs import NoSuchJob, all_jobs, find
    from tarragon.client.port import Selection

    if not wanted.names:
        found = await all_jobs(looker, Selection(namespace=namespace, labels=wanted.labels))
        return found, [] if found else [_none(wanted, namespace)]
    jobs: dict[str, Known] = {}
    missing: list[NoSuchJob] = []
    for name in wanted.names:
        try:
            job = await find(looker, name, namespace)
        except NoSuchJob as error:
            missing.append(error)
        else:
            jobs[job.uid] = job
    return list(jobs.values()), missing


def _none(wanted: Choice, namespace: str) -> NoSuchJob:
    from tarragon.cli.jobview.jobs import NoSuchJob

    which = f" with the labels {wanted.labels}" if wanted.labels else ""
    return NoSuchJob(f"there is no job{which} in namespace {namespace}", remedy="`list -A` shows all there are")
