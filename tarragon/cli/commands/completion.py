"""`tarragon completion`: prints the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tarragon.cli.options.settings import TarragonCommand

SHELLS = ("bash", "zsh", "fish", "powershell")
COMPLETION_VARIABLE = "_TARRAGON_COMPLETE"


@click.command("completion", cls=TarragonCommand)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the shell script that completes commands, options and job names."""
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"click does not support {shell}")
    click.echo(completion_class(ctx.find_root().command, {}, "tarragon", COMPLETION_VARIABLE).source())
