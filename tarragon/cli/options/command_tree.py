"""The commands as a table, so that the first page and the completion of a name import none of them."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from types import MappingProxyType
from typing import NoReturn

import click

COMMANDS = MappingProxyType(
    {
        name: f"tarragon.cli.commands.{module}"
        for name, module in (
            ("run", "run"),
            ("submit", "submit"),
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
            ("debug-dump", "debugdump"),
            ("config", "config"),
            ("version", "version"),
            ("completion", "completion"),
        )
    }
)
"""Name -> the module whose `command` it is."""

FIRST_PAGE = """\
Usage: {name} [--context NAME] [-n NAMESPACE] COMMAND [ARGS]
{where}

  Train    run        submit FILE, follow its logs, exit with its result
           submit     submit FILE and return    validate  every problem in FILE
  Look     list  get  describe     wait   until it ends
           top        all of it on one page, live
           logs       of all replicas, also of finished jobs
           why        it waits, does not start, or failed
  Change   suspend  resume  scale  delete
  Local    up  down  kubeconfig  check  debug-dump
  Cluster  operator  node          Files  convert  diff
  More     config  version  completion

First: {program} run examples/tensorflow/ps.yaml
Help:  {program} COMMAND --help
"""

ELSEWHERE = MappingProxyType(
    {"stop": "`delete` ends a job, `down` the local cluster", "ps": "`list`", "status": "`list`"}
)
"""What other tools call it."""

READER_WENT = 141
"""As the shell reports a program that SIGPIPE ended: `tarragon list | head -1` is no error."""


class Tree(click.Group):
    """Imports a command when it is asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from tarragon.cli.options.config_file import BadConfig, configuration, require_commands
        from tarragon.cli.options.settings import asks_for_help, configured

        try:
            configured(self, ctx, "")
            require_commands(configuration(), list(COMMANDS))
        except BadConfig:
            # `config` is how it is mended, and whoever presses Tab hears of no fault.
            if not (ctx.resilient_parsing or asks_for_help(args) or "config" in args):
                raise
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        module = COMMANDS.get(cmd_name)
        command: object = import_module(module).command if module is not None else None
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            _unknown(ctx, args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # Before click sees it: that would make it an exit code 1, as of a real error.
            raise click.exceptions.Exit(reader_went()) from error

    def get_help(self, ctx: click.Context) -> str:
        from tarragon.cli.output.invocation import here

        return first_page(here(), ctx.find_root().info_name or "tarragon").rstrip()


def first_page(program: str, name: str) -> str:
    """`name` is how we are called in general, `program` how to call us from here."""
    where = "Train TFJobs: on this machine by default, on Kubernetes with --context."
    if name != "tarragon":
        where = "Train TFJobs on the cluster of kubectl's current context."
    return FIRST_PAGE.format(program=program, name=name, where=where)


def reader_went() -> int:
    """The exit code, once the interpreter has been kept from meeting the closed pipe again when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_WENT


def _unknown(ctx: click.Context, name: str) -> NoReturn:
    near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    meant = ELSEWHERE.get(name) or (f"`{near[0]}`" if near else "")
    hint = f"did you mean {meant}?" if meant else f"there are {', '.join(COMMANDS)}"
    raise click.UsageError(f"no such command: {name}; {hint}", ctx)
