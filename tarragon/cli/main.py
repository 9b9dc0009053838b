"""The entry points of the command line: parse the arguments, run one command, print errors, return the exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from io import StringIO
from typing import NoReturn

import click

from tarragon.base.errors import TarragonError
from tarragon.cli.options.command_tree import RootGroup, handle_broken_pipe
from tarragon.cli.options.error_output import error_text, is_verbose, report_bug
from tarragon.cli.options.help_layout import help_width
from tarragon.cli.options.settings import GlobalOptions, global_options, version_option
from tarragon.cli.output.prose import print_message
from tarragon.cli.output.terminal import escape_output

INTERRUPTED = 130
_COMPLETION_VARIABLE = "_TARRAGON_COMPLETE"
"""Set in the environment by the completion script of a shell."""
_DEFAULTS = GlobalOptions()


@click.pass_context
def _print_help(ctx: click.Context) -> None:
    """Print the help text when no command is given."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


root_command = RootGroup(
    name="tarragon",
    params=[*global_options(), version_option()],
    callback=_print_help,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "TARRAGON"},
)


def main() -> NoReturn:
    if _COMPLETION_VARIABLE in os.environ:
        _silence_errors()
    else:
        _install_handlers()
    sys.exit(run_command(sys.argv[1:]))


def plugin() -> NoReturn:
    """Run as `kubectl tarragon`: the same commands, on kubectl's current context."""
    _install_handlers()
    sys.exit(run_command(sys.argv[1:], GlobalOptions(is_plugin=True)))


def complete_plugin() -> NoReturn:
    """Run as `kubectl_complete-tarragon`, which kubectl calls to complete `kubectl tarragon`."""
    _silence_errors()
    sys.exit(print_completions(sys.argv[1:], GlobalOptions(is_plugin=True)))


def _install_handlers() -> None:
    """Deliver Ctrl-C to the command as KeyboardInterrupt, and escape control characters in output to a terminal."""
    escape_output()
    sys.excepthook = report_bug
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _silence_errors() -> None:
    """Print no error and no traceback: during completion it would appear inside the user's command line."""
    escape_output()
    sys.excepthook = lambda *_: None
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _report_missing_module(error: ModuleNotFoundError) -> int:
    """Print how to install the extra that brings the module; raise the error if none does."""
    from tarragon.cli.targets.extras import extra_with, require_extra

    extra = extra_with(error.name or "")
    if extra is None:
        raise error
    try:
        require_extra(extra, "this")
    except TarragonError as missing:
        print_message(error_text(missing))
        return missing.exit_code
    raise error


def print_completions(args: Sequence[str], settings: GlobalOptions) -> int:
    """Print one completion a line, then the directive for kubectl: `:4` no file names, `:0` complete file names."""
    from click.shell_completion import ShellComplete

    completer = ShellComplete(root_command, {"obj": settings}, settings.program, _COMPLETION_VARIABLE)
    found = completer.get_completions(list(args[:-1]), args[-1] if args else "")
    names = [item for item in found if item.type == "plain"]
    for item in names:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(":4" if names else ":0")
    return 0


def _shown(error: click.ClickException) -> str:
    """Returns the error as click prints it, with the usage in the width of stderr."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        error.ctx.terminal_width = help_width(sys.stderr)
    shown = StringIO()
    error.show(shown)
    return shown.getvalue().rstrip("\n")


def run_command(args: Sequence[str], settings: GlobalOptions = _DEFAULTS) -> int:
    """Run one command line and return its exit code. Expected errors are printed; others go to `sys.excepthook`."""
    try:
        code = root_command.main(
            args=list(args),
            prog_name=settings.program,
            standalone_mode=False,
            obj=settings,
            terminal_width=help_width(sys.stdout),
        )
        sys.stdout.flush()
    except TarragonError as error:
        if is_verbose(args):
            import traceback

            traceback.print_exception(error)
        print_message(error_text(error))
        return error.exit_code
    except click.ClickException as error:
        print_message(_shown(error))
        return error.exit_code
    except ModuleNotFoundError as error:
        return _report_missing_module(error)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return handle_broken_pipe()
    return code if isinstance(code, int) else 0
