"""`tarragon check`: checks that this machine or a cluster can run training jobs, and suggests remedies."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from tarragon.cli.options.settings import GlobalOptions, TarragonCommand, embedded_home
from tarragon.cli.output.finding import TEXT_COLUMN, Finding, finding_lines
from tarragon.cli.output.prose import width_of
from tarragon.cli.output.style import painter
from tarragon.cli.output.wrapping import wrap_prose


@click.command("check", cls=TarragonCommand)
@click.option("--operator", "for_operator", is_flag=True, help="also check that you may run the operator")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="output format")
@click.pass_obj
def command(settings: GlobalOptions, *, for_operator: bool, form: str | None) -> int:
    """Check that this machine, or the cluster of --context, can run training jobs.

    \b
    Exit codes: 0 jobs can run, 1 they can't
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    paint = painter(colors=settings.terminal().colors_out)
    findings = collect_findings(settings, for_operator=for_operator)
    if form is not None:
        from tarragon.cli.jobview.schema import check_document
        from tarragon.cli.options.formats import FORMATTERS

        click.echo(FORMATTERS[form](check_document(findings)))
    for finding in findings if form is None else ():
        for line in finding_lines(finding, paint):
            for row in wrap_prose(line, width_of(sys.stdout), " " * (TEXT_COLUMN + 2)):
                click.echo(row, color=True)
    return 1 if any(finding.level == "error" for finding in findings) else 0


def collect_findings(settings: GlobalOptions, *, for_operator: bool = False) -> Sequence[Finding]:
    if not settings.is_local:
        import asyncio
        import os

        from tarragon.base.clock import SystemClock
        from tarragon.cli.checks.cluster import check_cluster
        from tarragon.cli.targets.foreign import kubeconfig_target

        return asyncio.run(
            check_cluster(kubeconfig_target(settings, os.environ), SystemClock(), for_operator=for_operator)
        )
    if for_operator:
        raise click.UsageError("--operator needs --context: the local cluster has its own operator")
    from tarragon.cli.checks.machine import check_local_machine

    return list(check_local_machine(embedded_home()))
