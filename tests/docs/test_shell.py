from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.shell import Result, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, {"PATH": os.environ["PATH"]}) as shell:
        yield shell


def test_a_folder_and_a_variable_last_from_command_to_command(shell: Shell, tmp_path: Path) -> None:
    shell.run("mkdir inner && cd inner && export GREETING='good day'", timeout=10)

    assert shell.run('pwd; echo "$GREETING"', timeout=10) == Result(0, f"{tmp_path / 'inner'}\ngood day\n")


def test_the_exit_code_and_both_outputs_are_seen(shell: Shell) -> None:
    assert shell.run("echo one; echo two >&2; (exit 7)", timeout=10) == Result(7, "one\ntwo\n")


def test_a_command_may_end_in_a_comment_or_without_a_newline(shell: Shell) -> None:
    assert shell.run("printf x  # a comment", timeout=10) == Result(0, "x")


def test_a_command_over_two_lines_is_one_command(shell: Shell) -> None:
    assert shell.run("echo a \\\n    b", timeout=10) == Result(0, "a b\n")


def test_a_command_that_waits_for_ever_is_reported_with_what_it_said(shell: Shell) -> None:
    with pytest.raises(AssertionError, match=r"did not end in time; so far it said:\nwaiting"):
        shell.run("echo waiting; tail -f /dev/null", timeout=0.3)


def test_a_command_that_ends_the_shell_is_reported(shell: Shell) -> None:
    with pytest.raises(AssertionError, match="the shell has ended"):
        shell.run("exit 3", timeout=10)
