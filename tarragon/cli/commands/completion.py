"""`tarragon completion`: prints the completion script of a shell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from tarragon.base.errors import TarragonError
from tarragon.cli.options.settings import TarragonCommand

SHELLS = ("bash", "zsh", "fish", "powershell")
COMPLETION_VARIABLE = "_TARRAGON_COMPLETE"


_SET_UP: Mapping[str, str] = {
    "bash": "`source <(tarragon completion bash)`; in ~/.bashrc, too, for every new shell",
    "zsh": "`source <(tarragon completion zsh)`; in ~/.zshrc, too, for every new shell",
    "fish": "`tarragon completion fish | source`; in ~/.config/fish/config.fish, too, for every new shell",
}
"""What to type in a shell, and in which file of its own."""


class MissingShell(TarragonError):
    """The command was called without a shell. Exit code 2, as for any usage error."""

    exit_code = 2


@click.command("completion", cls=TarragonCommand)
@click.argument("shell", type=click.Choice(SHELLS), metavar=f"{{{'|'.join(SHELLS)}}}", required=False)
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> None:
    """Print the shell script that completes commands, options and job names."""
    if shell is None:
        raise _missing_shell(os.environ.get("SHELL", ""))
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"click does not support {shell}")
    click.echo(completion_class(ctx.find_root().command, {}, "tarragon", COMPLETION_VARIABLE).source())


def _missing_shell(login_shell: str) -> MissingShell:
    name = PurePath(login_shell).name
    if name in _SET_UP:
        return MissingShell("which shell?", why=f"yours is {name}, as SHELL says", remedy=f"type {_SET_UP[name]}")
    return MissingShell("which shell?", remedy=f"type `tarragon completion SHELL` with one of {', '.join(SHELLS)}")
