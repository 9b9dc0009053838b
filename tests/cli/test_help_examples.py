"""The examples in the help of every command: there are some, and each is a command line that is understood."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tarragon.cli.main import root_command
from tarragon.cli.options.example_lines import EXAMPLES, examples_of
from tarragon.cli.options.settings import GlobalOptions


def contexts(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Of the command and of all below it."""
    context = click.Context(command, parent=parent, info_name=name)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from contexts(found, each, context)


def called(line: str) -> list[list[str]]:
    """The words behind `tarragon` in a line of a shell, for each call."""
    without_comment = line.partition("   #")[0]
    calls = re.findall(r"tarragon ([^|>()<]*)", without_comment)
    return [shlex.split(each) for each in calls]


@pytest.mark.parametrize("context", list(contexts(root_command, "tarragon"))[1:], ids=lambda each: each.command_path)
def test_the_help_of_every_command_has_two_examples_or_more(context: click.Context) -> None:
    name = context.command_path.removeprefix("tarragon ")
    page = context.get_help().replace(" \\\n      ", " ")  # as a shell joins rows

    assert len(EXAMPLES[name]) >= 2
    assert all(f"\n  {line}\n" in f"{page}\n" for line in EXAMPLES[name])


def test_there_are_no_examples_of_commands_that_there_are_not() -> None:
    assert {each.command_path.removeprefix("tarragon ") for each in contexts(root_command, "tarragon")} > {*EXAMPLES}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in EXAMPLES.items() for line in lines])
def test_every_example_is_understood_and_is_one_of_its_command(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TARRAGON_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("TOKEN", "secret")
    for file in ("trace.csv", "job.yaml", "queues.yaml"):
        (tmp_path / file).touch()
    [words] = called(line)
    context = root_command.make_context("tarragon", words, obj=GlobalOptions())
    command: click.Command | None = root_command
    args = [*context._protected_args, *context.args]  # noqa: SLF001 - where click keeps them in between

    for each in name.split():
        assert args.pop(0) == each
        assert isinstance(command, click.Group)
        command = command.get_command(context, each)
        assert command is not None
        if not isinstance(command, click.Group):
            context = command.make_context(each, args, parent=context)


def test_the_plugin_of_kubectl_shows_how_it_is_called() -> None:
    context = next(each for each in contexts(root_command, "kubectl tarragon") if each.info_name == "get")

    assert list(examples_of(context)) == ["kubectl tarragon get digits", "kubectl tarragon get tfjob/digits -o yaml"]
