"""`tarragon validate`: every problem of a manifest, without any cluster."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.base.errors import Problem
from tarragon.cli.filecommand import one_file
from tarragon.cli.files import named
from tarragon.cli.loading import parse, refused
from tarragon.cli.onlyhere import only_here, this_machine
from tarragon.cli.settings import Command, Settings
from tarragon.cli.words import listed
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.plan.intake import intake
from tarragon.plan.manifest import Document


@click.command("validate", cls=Command)
@click.argument("file", metavar="FILE", required=False)
@click.option("-f", "--file", "option", metavar="FILE", help="the same, as kubectl has it")
@click.pass_obj
def command(settings: Settings, *, file: str | None, option: str | None) -> None:
    """Tell every problem in FILE, each with its line and its remedy. FILE may be - or a URL.

    With --context it warns of what exists on this machine only, too. No cluster is asked.

    \b
    Exit codes: 0 fine, 2 problems
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    name = one_file(file, option)
    documents = parse(name)
    problems = [] if documents.jobs else [Problem("", "there is no job in the manifest", "add one")]
    warnings = []
    for job in documents.jobs:
        taken = intake(job.framework or FRAMEWORKS[0], job.manifest)
        problems += [job.placed(problem) for problem in (*taken.problems, *taken.unknown)]
        warnings += [job.placed(warning) for warning in taken.warnings]
        if not settings.is_local:
            warnings += [job.placed(warning) for warning in only_here(job.manifest, this_machine())]
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if problems:
        raise refused(name, problems)
    click.echo(f"{named(name)}: {_told(documents.jobs)} fine")


def _told(jobs: Sequence[Document]) -> str:
    names = [job.name for job in jobs]
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"
