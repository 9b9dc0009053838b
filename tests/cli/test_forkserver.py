"""A command that is forked is what the plain program is."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tarragon.localcluster.home.home import Home
from tarragon.localcluster.home.lock import read_server
from tests.cli.conftest import CommandResult, Shell


def plainly(shell: Shell, *words: str, stdin: str) -> CommandResult:
    ended = subprocess.run(
        shell.command(*words),
        cwd=shell.folder,
        env=shell.environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("version",),
        ("list",),
        ("list", "--nonsense"),
        ("describe", "nothing"),
        ("validate", "-"),
        ("run", "-"),
        ("submit", "nothing.yaml"),
        ("convert", "-", "--to", "kubeflow.org/v1"),
        ("logs", "nothing", "--context", "nowhere"),
        ("down",),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_it_ends_and_says_as_the_plain_program(shell: Shell, words: Sequence[str]) -> None:
    assert shell(*words, stdin="kind: TFJob") == plainly(shell, *words, stdin="kind: TFJob")


def test_it_has_the_environment_the_folder_and_the_mode_of_who_starts_it(shell: Shell) -> None:
    before = os.umask(0o27)
    try:
        going = shell.start("up")
        going.until("ready")
    finally:
        os.umask(before)

    assert (shell.home / "kubeconfig").exists()
    going.signal(signal.SIGTERM)
    assert going.ended().code == 0


def test_a_signal_ends_it_as_it_ends_the_plain_program(shell: Shell) -> None:
    going = shell.start("up")
    going.until("ready")

    assert going.is_going
    going.signal(signal.SIGKILL)

    assert going.ended().code == -signal.SIGKILL
    assert not going.is_going


def test_python_is_set_by_variables_that_it_reads_when_it_starts(shell: Shell) -> None:
    shell.file("sitecustomize.py", "print('begins')")
    path = os.pathsep.join([str(shell.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    otherwise = Shell(folder=shell.folder, home=shell.home, variables={"PYTHONPATH": path})

    assert otherwise("version").out == f"begins\n{shell('version').out}"


def test_a_cluster_that_a_command_starts_outlives_it_and_is_known_by_its_home(shell: Shell) -> None:
    assert shell("kubeconfig") == plainly(shell, "kubeconfig", stdin="")
    server = read_server(Home(shell.home))

    assert server is not None
    assert server.is_running()
    assert os.getsid(server.pid) == server.pid
    assert os.fsencode(shell.home) in Path(f"/proc/{server.pid}/environ").read_bytes()
    assert shell("down").code == 0
    assert not server.is_running()


def test_a_cluster_that_a_command_starts_ignores_the_signals_that_python_ignores(shell: Shell) -> None:
    """A client that is gone before it has its answer must not end the cluster."""
    assert shell("kubeconfig").code == 0
    forked = ignored_signals(shell)
    assert shell("down").code == 0
    assert plainly(shell, "kubeconfig", stdin="").code == 0

    assert forked == ignored_signals(shell)


def ignored_signals(shell: Shell) -> set[signal.Signals]:
    server = read_server(Home(shell.home))
    assert server is not None
    status = Path(f"/proc/{server.pid}/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return {number for number in signal.Signals if mask & (1 << number - 1)}
