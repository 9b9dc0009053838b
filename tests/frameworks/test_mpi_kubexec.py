"""kubexec.sh, run by real shells as mpirun does, with programs in the place of kubectl and of the node's agent."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tarragon.frameworks.mpi.objects.kubexec import KUBECTL_PATH, kubexec_script
from tarragon.frameworks.mpi.options import MpiOptions
from tarragon.localcluster.kubelet.rsh.agent import VALUE_OPTIONS

Kubexec = Callable[..., "subprocess.CompletedProcess[str]"]
USAGE = "kubexec.sh: no host was named; usage: kubexec.sh [OPTIONS OF SSH] HOST COMMAND...\n"


@pytest.fixture(params=["/bin/sh", "bash"])
def kubexec(request: pytest.FixtureRequest, tmp_path: Path) -> Kubexec:
    """Runs the script in a shell; its kubectl and its agent print their words, one a line."""
    shell = shutil.which(request.param)
    if shell is None:
        pytest.skip(f"there is no {request.param} here")
    for name in ("kubectl", "agent"):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\"\n")
        (tmp_path / name).chmod(0o755)

    def run(*words: str, agent: bool = False, container: str = "") -> subprocess.CompletedProcess[str]:
        script = tmp_path / "kubexec.sh"
        script.write_text(kubexec_script(MpiOptions(main_container=container)).replace(KUBECTL_PATH, str(tmp_path)))
        variables = {"PATH": os.environ["PATH"], "TARRAGON_RSH": str(tmp_path / "agent") if agent else ""}
        return subprocess.run(
            [shell, str(script), *words], env=variables, capture_output=True, text=True, check=False, timeout=10
        )

    return run


def test_a_command_is_given_to_a_shell_in_the_pod(kubexec: Kubexec) -> None:
    ended = kubexec("-x", "pi-worker-0", "orted", "-mca", 'ess "env"')

    assert ended.stdout.splitlines() == [
        *("kubectl", "exec", "pi-worker-0", "--", "/bin/sh", "-c", 'orted -mca ess "env"')
    ]


def test_the_container_of_the_manifest_is_named(kubexec: Kubexec) -> None:
    ended = kubexec("pi-worker-0", "orted", container="a b")

    assert ended.stdout.splitlines()[:5] == ["kubectl", "exec", "pi-worker-0", "--container", "a b"]


def test_the_agent_of_a_node_that_runs_processes_gets_the_words_as_they_are(kubexec: Kubexec) -> None:
    ended = kubexec("-p", "22", "pi-worker-0", "orted", "a  b", agent=True)

    assert ended.stdout.splitlines() == ["agent", "pi-worker-0", "orted", "a  b"]


@pytest.mark.parametrize("option", VALUE_OPTIONS)
def test_the_value_of_an_option_of_ssh_is_no_host(kubexec: Kubexec, option: str) -> None:
    for words in ([f"-{option}", "value"], [f"-x{option}", "value"], [f"-{option}value"], [f"-q{option}value"]):
        assert kubexec(*words, "pi-worker-0", "orted", agent=True).stdout.splitlines()[1] == "pi-worker-0"


def test_two_dashes_end_the_options(kubexec: Kubexec) -> None:
    assert kubexec("-x", "--", "pi-worker-0", "orted", agent=True).stdout.splitlines()[1] == "pi-worker-0"


@pytest.mark.parametrize("words", [(), ("-x",), ("-p",), ("-o", "ConnectionAttempts=10"), ("--",), ("",)])
def test_a_call_without_a_host_says_so_and_ends_with_2(kubexec: Kubexec, words: tuple[str, ...]) -> None:
    ended = kubexec(*words)

    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", USAGE)
