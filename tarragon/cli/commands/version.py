"""`tarragon version`: which tarragon this is, and on what."""

from __future__ import annotations

import json
import platform
import sys

import click

from tarragon import __version__
from tarragon.cli.settings import Command


@click.command("version", cls=Command)
@click.option("-o", "output", type=click.Choice(["json"]), help="machine-readable")
def command(output: str | None) -> None:
    """Which tarragon this is, and on what it runs."""
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
    }
    if output == "json":
        click.echo(json.dumps(facts))
        return
    click.echo(f"tarragon {facts['version']}, Python {facts['python']} ({facts['executable']}), {facts['platform']}")
