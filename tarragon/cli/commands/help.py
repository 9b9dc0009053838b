"""`tarragon help`: prints the help of a command, as `tarragon COMMAND --help` does."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from tarragon.cli.options.settings import TarragonCommand


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    group: click.Command | None = ctx.find_root().command
    for word in ctx.params.get("names") or ():
        group = group.get_command(ctx, word) if isinstance(group, click.Group) else None
    names = group.list_commands(ctx) if isinstance(group, click.Group) else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help", cls=TarragonCommand)
@click.argument("names", metavar="[COMMAND...]", nargs=-1, shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, names: Sequence[str]) -> None:
    """Print the help of COMMAND, such as `list` or `config set`. Without COMMAND, list the commands."""
    shown = ctx.find_root()
    words = list(names)
    while words:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"{shown.command_path} has no commands; type `{shown.command_path} --help`")
        name, found, words = shown.command.resolve_command(shown, words)
        if found is None:
            break
        shown = found.context_class(found, parent=shown, info_name=name, obj=ctx.obj)
    click.echo(shown.get_help())
