"""`tarragon check`: checks that this machine or a cluster can run training jobs, and suggests remedies."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.options.settings import Command, Settings, home
from tarragon.cli.output.finding import Finding, told
from tarragon.cli.output.style import painter


@click.command("check", cls=Command)
@click.option("--operator", "for_operator", is_flag=True, help="also check that you may run the operator")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="output format")
@click.pass_obj
def command(settings: Settings, *, for_operator: bool, form: str | None) -> int:
    """Check that this machine, or the cluster of --context, can run training jobs.

    \b
    Exit codes: 0 jobs can run, 1 they can't
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    paint = painter(colors=settings.terminal().colors_out)
    findings = found(settings, for_operator=for_operator)
    if form is not None:
        from tarragon.cli.jobview.schema import check
        from tarragon.cli.options.formats import TEXTS

        click.echo(TEXTS[form](check(findings)))
    for finding in findings if form is None else ():
        for line in told(finding, paint):
            click.echo(line, color=True)
    return 1 if any(finding.level == "error" for finding in findings) else 0


def found(settings: Settings, *, for_operator: bool = False) -> Sequence[Finding]:
    if not settings.is_local:
        import asyncio
        import os

        from tarragon.base.clock import SystemClock
        from tarragon.cli.checks.cluster import of_cluster
        from tarragon.cli.targets.foreign import foreign

        return asyncio.run(of_cluster(foreign(settings, os.environ), SystemClock(), for_operator=for_operator))
    if for_operator:
        raise click.UsageError("--operator needs --context: the local cluster has its own operator")
    from tarragon.cli.checks.machine import of_this_machine

    return list(of_this_machine(home()))
