"""`tarragon validate`: every problem of a manifest, without any cluster."""

from __future__ import annotations

import click

from tarragon.base.errors import Problem
from tarragon.cli.completing import complete_file
from tarragon.cli.filecommand import one_file
from tarragon.cli.files import named
from tarragon.cli.loading import parse, refused
from tarragon.cli.onlyhere import only_here, this_machine
from tarragon.cli.settings import Command, Settings
from tarragon.cli.words import listed
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.plan.intake import intake
from tarragon.plan.provenance import digest


@click.command("validate", cls=Command)
@click.argument("file", metavar="FILE", required=False, shell_complete=complete_file)
@click.option("-f", "--file", "option", metavar="FILE", shell_complete=complete_file, help="the same, as of kubectl")
@click.option("--hash", "digests", is_flag=True, help="print the digest of each job's spec, as its status keeps it")
@click.pass_obj
def command(settings: Settings, *, file: str | None, option: str | None, digests: bool) -> None:
    """Tell every problem in FILE, each with its line and its remedy, and which generation of the API each job is of.

    FILE may be - or a URL. Rules and defaults are those of the generation; `convert` writes another one.
    With --context it warns of what exists on this machine only, too. No cluster is asked.

    \b
    Exit codes: 0 fine, 2 problems
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    name = one_file(file, option)
    documents = parse(name)
    problems = [] if documents.jobs else [Problem("", "there is no job in the manifest", "add one")]
    warnings, names = [], []
    for job in documents.jobs:
        taken = intake(job.framework or FRAMEWORKS[0], job.manifest)
        names.append(f"{job.name} ({taken.dialect.name if taken.dialect is not None else 'of no known generation'})")
        problems += [job.placed(problem) for problem in (*taken.problems, *taken.unknown)]
        warnings += [job.placed(warning) for warning in taken.warnings]
        if not settings.is_local:
            warnings += [job.placed(warning) for warning in only_here(job.manifest, this_machine())]
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if problems:
        raise refused(name, problems)
    if digests:
        for job in documents.jobs:
            click.echo(f"{digest(job.manifest.get('spec'))}  {job.name}")
        return
    click.echo(f"{named(name)}: {listed(names)} {'is' if len(names) == 1 else 'are'} fine")
