"""The table of commands. The help page and the completion of command names read it without importing any command."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import NoReturn

import click

COMMANDS = MappingProxyType(
    {
        name: f"tarragon.cli.commands.{module}"
        for name, module in (
            ("run", "run"),
            ("submit", "submit"),
            ("init", "init"),
            ("validate", "validate"),
            ("list", "listing"),
            ("top", "top"),
            ("get", "get"),
            ("describe", "describe"),
            ("why", "why"),
            ("wait", "wait"),
            ("logs", "logs"),
            ("suspend", "suspend"),
            ("resume", "resume"),
            ("scale", "scale"),
            ("delete", "delete"),
            ("up", "up"),
            ("down", "down"),
            ("kubeconfig", "kubeconfig"),
            ("check", "check"),
            ("operator", "operator"),
            ("node", "node"),
            ("convert", "convert"),
            ("diff", "diff"),
            ("simulate", "simulate"),
            ("export-trace", "export_trace"),
            ("debug-dump", "debug_dump"),
            ("examples", "examples"),
            ("docs", "docs"),
            ("config", "config"),
            ("version", "version"),
            ("completion", "completion"),
            ("help", "help"),
        )
    }
)
"""The module of each command, by the command's name. Its `command` is the click command."""

HELP_PAGE = """\
Usage: {name} [--context NAME] [-n NAMESPACE] COMMAND [ARGS]
{where}

  Train    run        submit FILE, follow its logs, exit with its result
           submit     submit FILE and return    validate  every problem in FILE
           init       write a manifest for a script
  Look     list  get  describe     wait   until it ends
           top        live view of jobs and nodes
           logs       of all replicas, also of finished jobs
           why        a job waits, does not start, or failed
  Change   suspend  resume  scale  delete
  Local    up  down  kubeconfig  check  debug-dump
  Cluster  operator  node          Files  convert  diff
  Plan     simulate  export-trace
  More     examples  docs  config  version  completion  help

First: {program} examples
Help:  {program} help COMMAND
"""

JOBS = "TFJobs, MPIJobs, JAXJobs and SharePods"
"""What the registry of frameworks says in `kinds_in_words`, which is too much to import for help."""

BROKEN_PIPE = 141
"""The exit code that a shell reports for SIGPIPE: `tarragon list | head -1` is not an error."""


_GC_THRESHOLD = 50_000
"""Objects that a command makes until garbage is looked for: most end before. Python's usual 700 take a twentieth of
their time; the servers choose their own numbers.
"""


def _import(module: str) -> ModuleType:
    """Import a command's module. Nothing that an import makes is garbage, and looking for some takes a tenth of it."""
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD)
        gc.enable()


class RootGroup(click.Group):
    """The root command. It imports a subcommand only when it is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from tarragon.cli.options.config_file import InvalidConfig, read_config, require_commands
        from tarragon.cli.options.settings import apply_config, asks_for_help

        try:
            apply_config(self, ctx, "")
            require_commands(read_config(), list(COMMANDS))
        except InvalidConfig:
            # `config` is needed to fix the file, and completion prints no errors.
            if not (ctx.resilient_parsing or asks_for_help(args) or "config" in args):
                raise
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        module = COMMANDS.get(cmd_name)
        command: object = _import(module).command if module is not None else None
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            _fail_unknown_command(ctx, args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # Caught before click, which would exit with code 1, as for a real error.
            raise click.exceptions.Exit(handle_broken_pipe()) from error

    def get_help(self, ctx: click.Context) -> str:
        from tarragon.cli.output.invocation import current_invocation

        return help_page(current_invocation(), ctx.find_root().info_name or "tarragon").rstrip()


def help_page(program: str, name: str) -> str:
    """Returns the help page. `name` is the program's name; `program` is how to call it from the current folder."""
    where = f"Train {JOBS} on this machine, or on a cluster."
    if name != "tarragon":
        where = f"Train {JOBS} on kubectl's cluster."
    return HELP_PAGE.format(program=program, name=name, where=where)


def handle_broken_pipe() -> int:
    """Redirects stdout, so that the final flush does not fail on the closed pipe, and returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _fail_unknown_command(ctx: click.Context, name: str) -> NoReturn:
    from tarragon.cli.options.foreign_names import meant_command
    from tarragon.cli.options.settings import GlobalOptions

    settings = ctx.obj if isinstance(ctx.obj, GlobalOptions) else GlobalOptions()
    hint = meant_command(name, COMMANDS, is_local=settings.is_local)
    hint = hint or f"the commands are {', '.join(COMMANDS)}"
    raise click.UsageError(f"unknown command {name}; {hint}", ctx)
