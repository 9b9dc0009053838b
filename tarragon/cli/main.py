"""Where `tarragon` begins and ends: parses, runs one command, and tells what went wrong with the right exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.options.command_tree import Tree, reader_went
from tarragon.cli.options.error_output import bug, is_verbose, words
from tarragon.cli.options.settings import Settings, global_options
from tarragon.cli.output.terminal import escape_output

INTERRUPTED = 130
_COMPLETING = "_TARRAGON_COMPLETE"
"""In the environment when a shell asks what may follow."""
_ORDINARY = Settings()


@click.pass_context
def _first_page(ctx: click.Context) -> None:
    """Asked nothing, tell what can be asked."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


root = Tree(
    name="tarragon",
    params=global_options(),
    callback=_first_page,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TARRAGON"},
)


def main() -> NoReturn:
    if _COMPLETING in os.environ:
        _be_silent()
    else:
        _take_over()
    sys.exit(call(sys.argv[1:]))


def plugin() -> NoReturn:
    """`kubectl tarragon`: the same commands, about the cluster that kubectl is about."""
    _take_over()
    sys.exit(call(sys.argv[1:], Settings(is_plugin=True)))


def complete_plugin() -> NoReturn:
    """`kubectl_complete-tarragon`, which kubectl calls when somebody presses Tab behind `kubectl tarragon`."""
    _be_silent()
    sys.exit(completions(sys.argv[1:], Settings(is_plugin=True)))


def _take_over() -> None:
    """From here on a Ctrl-C is told to the command, and what is written to a terminal is text."""
    escape_output()
    sys.excepthook = bug
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _be_silent() -> None:
    """Somebody is writing a command line: whatever is said stands in the middle of it."""
    escape_output()
    sys.excepthook = lambda *_: None
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def completions(args: Sequence[str], settings: Settings) -> int:
    """One a line, and last what kubectl's shell is to do with them: 4, no names of files; 0, those of files."""
    from click.shell_completion import ShellComplete

    completing = ShellComplete(root, {"obj": settings}, settings.program, _COMPLETING)
    found = completing.get_completions(list(args[:-1]), args[-1] if args else "")
    names = [item for item in found if item.type == "plain"]
    for item in names:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(":4" if names else ":0")
    return 0


def call(args: Sequence[str], settings: Settings = _ORDINARY) -> int:
    """One command line; everything that can be foreseen ends here, the rest is a bug and goes to sys.excepthook."""
    try:
        code = root.main(args=list(args), prog_name=settings.program, standalone_mode=False, obj=settings)
        sys.stdout.flush()
    except TarragonError as error:
        if is_verbose(args):
            import traceback

            traceback.print_exception(error)
        click.echo(words(error), err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return reader_went()
    return code if isinstance(code, int) else 0
