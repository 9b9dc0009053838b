from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tarragon.cli.jobview.target import CommandPrefix
from tarragon.cli.output.invocation import invocation
from tarragon.cli.output.terminal import ColorChoice, Sink, terminal_for
from tarragon.cli.targets.next_commands import next_commands
from tarragon.kube.meta import Key


@pytest.mark.parametrize(
    ("choice", "env", "out", "colored"),
    [
        ("auto", {"TERM": "xterm"}, Sink.TERMINAL, True),
        ("auto", {"TERM": "xterm"}, Sink.FILE, False),
        ("auto", {"TERM": "dumb"}, Sink.TERMINAL, False),
        ("auto", {"NO_COLOR": "1"}, Sink.TERMINAL, False),
        ("auto", {"NO_COLOR": ""}, Sink.TERMINAL, True),
        ("always", {"NO_COLOR": "1"}, Sink.PIPE, True),
        ("never", {}, Sink.TERMINAL, False),
    ],
)
def test_colors_follow_the_user_then_the_conventions(
    choice: ColorChoice, env: Mapping[str, str], out: Sink, *, colored: bool
) -> None:
    assert terminal_for(choice, env, out, Sink.TERMINAL).colors_out is colored


@pytest.mark.parametrize(
    ("env", "out", "err", "live"),
    [
        ({}, Sink.TERMINAL, Sink.TERMINAL, True),
        ({}, Sink.FILE, Sink.TERMINAL, True),
        ({}, Sink.PIPE, Sink.TERMINAL, False),  # `| tee log` writes to the same terminal
        ({}, Sink.TERMINAL, Sink.FILE, False),
        ({"CI": "true"}, Sink.TERMINAL, Sink.TERMINAL, False),
        ({"CI": "false"}, Sink.TERMINAL, Sink.TERMINAL, True),
        ({"TERM": "dumb"}, Sink.TERMINAL, Sink.TERMINAL, False),
    ],
)
def test_progress_moves_only_where_nothing_else_can_get_in_between(
    env: Mapping[str, str], out: Sink, err: Sink, *, live: bool
) -> None:
    assert terminal_for("auto", env, out, err).is_live is live


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("tarragon", "python"):
        (folder / name).touch()
    return folder


def nowhere(_: str) -> str | None:
    return None


def test_a_program_on_path_is_called_by_its_name(venv: Path) -> None:
    program = str(venv / "tarragon")

    assert invocation(program, "", "/", lambda _: program) == "tarragon"


def test_another_program_of_that_name_on_path_is_not_ours(venv: Path, tmp_path: Path) -> None:
    program = str(venv / "tarragon")

    assert invocation(program, "", str(tmp_path), lambda _: "/usr/bin/tarragon") == ".venv/bin/tarragon"


def test_a_relative_call_is_repeated_as_it_was(venv: Path, tmp_path: Path) -> None:
    assert invocation(".venv/bin/tarragon", "", str(tmp_path), nowhere) == ".venv/bin/tarragon"
    assert invocation(str(venv / "tarragon"), "", str(venv), nowhere) == "./tarragon"


def test_from_elsewhere_the_whole_path_is_needed(venv: Path) -> None:
    assert invocation(str(venv / "tarragon"), "", "/elsewhere", nowhere) == str(venv / "tarragon")


def test_a_module_is_called_as_one(venv: Path, tmp_path: Path) -> None:
    module = "/lib/tarragon/__main__.py"

    assert invocation(module, str(venv / "python"), str(tmp_path), nowhere) == ".venv/bin/python -m tarragon"


def test_a_path_with_spaces_can_be_pasted(tmp_path: Path) -> None:
    program = str(tmp_path / "my tools" / "tarragon")

    assert invocation(program, "", "/elsewhere", nowhere) == f"'{program}'"


def test_hints_name_the_namespace_only_where_it_is_needed() -> None:
    wanted = [("logs", "logs"), ("follow", "logs --follow")]

    assert list(next_commands(CommandPrefix("tarragon", "default"), Key("default", "digits"), wanted)) == [
        "  logs     tarragon logs digits",
        "  follow   tarragon logs digits --follow",
    ]
    assert (
        next(next_commands(CommandPrefix("tarragon", "default"), Key("research", "digits"), wanted))
        == "  logs     tarragon -n research logs digits"
    )
