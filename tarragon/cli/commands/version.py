"""`tarragon version`: prints the versions of tarragon and Python, and the platform."""

from __future__ import annotations

import platform
import sys

import click

from tarragon import __version__
from tarragon.cli.options.settings import TarragonCommand


@click.command("version", cls=TarragonCommand)
@click.option("-o", "output", type=click.Choice(["json", "yaml"]), help="output format")
def command(output: str | None) -> None:
    """Print the versions of tarragon and Python, and the platform."""
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
    }
    if output is not None:
        from tarragon.cli.jobview.schema import document
        from tarragon.cli.options.formats import FORMATTERS

        click.echo(FORMATTERS[output](document("Version", facts)))
        return
    click.echo(f"tarragon {facts['version']}, Python {facts['python']} ({facts['executable']}), {facts['platform']}")
