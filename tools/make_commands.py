#!/usr/bin/env python3
"""Write docs/reference/commands.md: every command with its options and variables, generated from the code.

python tools/make_commands.py [--check]
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import click

from tarragon.cli.main import root_command
from tarragon.cli.options.command_tree import COMMANDS
from tarragon.cli.options.config_file import flags_of
from tarragon.cli.options.example_lines import EXAMPLES
from tools.generated_files import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

Written by tools/make_commands.py from the code; do not edit. [cli.md](../cli.md) describes what all commands have in
common: exit codes, variables, names of jobs, the config file. [cli-output.md](cli-output.md) describes their output.

Every option has a variable, in the last column, and a key in the config file: `tarragon config set run.timeout 2h`.
"""


def main(arguments: list[str]) -> int:
    return write_or_check({PAGE: "\n".join(page()).rstrip() + "\n"}, arguments, "make_commands.py")


def page() -> Iterator[str]:
    yield HEAD
    yield "## Options of every command"
    yield ""
    yield from options("TARRAGON", root_command)
    for name, module in COMMANDS.items():
        command: object = import_module(module).command
        if isinstance(command, click.Command):
            yield from section(f"tarragon {name}", command)


def section(name: str, command: click.Command) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield f"    {usage(name, command)}"
    yield ""
    yield from paragraphs(inspect.cleandoc(command.help or ""))
    yield "Examples:"
    yield ""
    yield "```text"
    yield from EXAMPLES[name.removeprefix("tarragon ")]
    yield "```"
    yield ""
    yield from options(name.upper().replace(" ", "_").replace("-", "_"), command)
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            yield from section(f"{name} {below}", each)


def usage(name: str, command: click.Command) -> str:
    arguments = [param.make_metavar(click.Context(command)) for param in command.params if is_argument(param)]
    kinds = ["COMMAND"] if isinstance(command, click.Group) else []
    return " ".join([name, *(["[OPTIONS]"] if flags_of(command) else []), *arguments, *kinds])


def is_argument(param: click.Parameter) -> bool:
    return isinstance(param, click.Argument)


def paragraphs(text: str) -> Iterator[str]:
    r"""Paragraphs of help as Markdown. A paragraph that click does not wrap, which begins with \b, is a code block."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```text"
            yield from paragraph.removeprefix("\b").strip("\n").splitlines()
            yield "```"
        else:
            yield paragraph
        yield ""


def options(prefix: str, command: click.Command) -> Iterator[str]:
    flags = flags_of(command)
    if not flags:
        return
    yield "| option | | variable |"
    yield "|---|---|---|"
    for option in flags.values():
        yield f"| {flag_names(option)} | {meaning(option)} | {variable(prefix, option)} |"
    yield ""


def flag_names(option: click.Option) -> str:
    context = click.Context(root_command)
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    return (
        ", ".join(f"`{each}`" for each in option.opts[:-1])
        + (", " if option.opts[:-1] else "")
        + (f"`{option.opts[-1]}{value}`".replace("|", "&#124;"))
        + "".join(f", `{each}`" for each in option.secondary_opts)
    )


def meaning(option: click.Option) -> str:
    default = option.default if option.show_default and isinstance(option.default, str | int | float) else None
    if default is True:
        default = option.opts[0]
    tail = f" (default: {f'{default:g}' if isinstance(default, float) else default})" if default is not None else ""
    return f"{option.help or ''}{tail}".replace("|", "&#124;")


def variable(prefix: str, option: click.Option) -> str:
    found: Sequence[str] = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    if not found and not option.allow_from_autoenv:
        return ""
    return f"`{found[0] if found else f'{prefix}_{option.name}'.upper()}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
