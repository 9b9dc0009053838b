"""Rules 14 and 20: Tab in real shells, fast, and never an error on the terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.cli.manifests import python, worker
from tests.cli.test_clusters import kubeconfig

pytestmark = pytest.mark.timeout(300)

SLOW = 2.0
"""Seconds of a processor, which do not tell what else the machine does; an idle one takes 0.15 (docs/cli.md)."""


def tab(shell: Shell, *words: str, more: Mapping[str, str] | None = None) -> list[str]:
    """What is offered for the last of the words, as bash asks for it."""
    asked = {"_TARRAGON_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    program = "import sys; sys.argv[0] = 'tarragon'; from tarragon.cli.main import main; main()"
    environment = {**shell.environment(), **asked, **(more or {})}
    command = [sys.executable, "-P", "-c", program]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr == ""
    return [line.partition(",")[2] for line in ended.stdout.splitlines() if line]


@pytest.fixture
def inhabited(shell: Shell) -> Shell:
    """With a job of each kind of one name, and one that only the older kind has; the cluster is down again."""
    shell("submit", shell.file("a.yaml", worker("digits", "print(1)", replicas=2)))
    template = {"spec": {"containers": [python("print(1)")], "restartPolicy": "OnFailure"}}
    spec = {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": template}]}
    for name in ("digits", "old"):
        body = {"apiVersion": "mlkube.io/v1beta1", "kind": "TfJob", "metadata": {"name": name}, "spec": spec}
        shell("submit", shell.file("b.yaml", json.dumps(body)))
    shell("down")
    return shell


def test_rule_14_jobs_kinds_replicas_and_namespaces_are_offered_and_no_cluster_is_started(inhabited: Shell) -> None:
    shell = inhabited

    assert tab(shell, "tarragon", "get", "") == [
        "tfjobs.kubeflow.org/digits",
        "tfjobs.mlkube.io/digits",
        "old",
    ]
    assert "tfjob/digits" in tab(shell, "tarragon", "get", "tfjob/")
    assert "tfjobs.mlkube.io/old" in tab(shell, "tarragon", "get", "tfjobs.mlkube.io/")
    assert tab(shell, "tarragon", "suspend", "@") == ["@latest"]
    assert tab(shell, "tarragon", "logs", "tfjob/digits", "--replica", "") == ["worker-0", "worker-1"]
    assert tab(shell, "tarragon", "logs", "tfjob/digits", "--type", "w") == ["worker"]
    assert "kube-system" in tab(shell, "tarragon", "-n", "kube")
    assert tab(shell, "tarragon", "list", "-n", "kube-s") == ["kube-system"]
    assert not (shell.home / "server.json").exists()


def test_contexts_are_offered_and_a_cluster_that_does_not_answer_is_no_error(shell: Shell) -> None:
    more = {"KUBECONFIG": kubeconfig(shell.folder / "k", "http://127.0.0.1:1", "prod", "staging", current="prod")}

    assert tab(shell, "tarragon", "--context", "", more=more) == ["local", "prod", "staging"]
    assert tab(shell, "tarragon", "--context", "prod", "get", "", more=more) == []
    (shell.folder / "k").write_text("{{")
    assert tab(shell, "tarragon", "--context", "", more=more) == ["local"]
    assert tab(shell, "tarragon", "get", "", more={"TARRAGON_CONFIG": str(shell.folder / "k")}) == []


def test_ctrl_c_while_a_cluster_is_asked_leaves_the_prompt_as_it_is(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        config = kubeconfig(shell.folder / "k", f"http://127.0.0.1:{cluster.getsockname()[1]}", "prod", current="prod")
        asked = {"_TARRAGON_COMPLETE": "bash_complete", "COMP_WORDS": "tarragon --context prod get ", "COMP_CWORD": "4"}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tarragon"],
            env={**shell.environment(), "KUBECONFIG": config, **asked},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        cluster.settimeout(60)
        with cluster.accept()[0]:
            process.send_signal(signal.SIGINT)

            assert process.communicate(timeout=60) == (b"", b"")
        assert process.returncode == -signal.SIGINT


def test_rule_20_tab_costs_little_time_of_the_processor(inhabited: Shell) -> None:
    began = os.times()

    tab(inhabited, "tarragon", "get", "")

    ended = os.times()
    assert ended.children_user + ended.children_system - began.children_user - began.children_system < SLOW


def test_kubectls_own_completion_finds_ours(shell: Shell) -> None:
    program = "import sys; from tarragon.cli.main import complete_plugin; complete_plugin()"

    def completed(*words: str) -> list[str]:
        command = [sys.executable, "-P", "-c", program, *words]
        ended = subprocess.run(command, env=shell.environment(), capture_output=True, text=True, check=True, timeout=60)
        assert ended.stderr == ""
        return ended.stdout.splitlines()

    offered, directive = completed("susp")
    assert offered.startswith("suspend\tSuspend jobs")
    assert directive == ":4"
    assert completed("run", "")[-1] == ":0"


def script(shell: Shell, name: str) -> Path:
    folder = shell.folder / "bin"
    folder.mkdir()
    program = folder / "tarragon"
    code = "import sys; sys.argv[0] = 'tarragon'; from tarragon.cli.main import main; main()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -c "{code}" "$@"\n')
    program.chmod(0o755)
    path = shell.folder / f"completion.{name}"
    path.write_text(shell("completion", name).out)
    return path


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_rule_14_in_a_real_shell_tab_offers_what_there_is(shell: Shell, name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here; Debian's package is {name}")
    shell("submit", shell.file("a.yaml", worker("digits", "print(1)")))
    file = script(shell, name)
    in_shell = {
        "bash": f"source {file}; COMP_WORDS=(tarragon get d); COMP_CWORD=2; _tarragon_completion tarragon d get;"
        'echo "${COMPREPLY[@]}"',
        "zsh": "compdef() { :; }; compadd() { for last; do :; done; print -- ${(P)last}; };"
        "_describe() { compadd $3; }; compstate=(); "
        f"source {file}; words=(tarragon get d); CURRENT=3; _tarragon_completion",
        "fish": f"source {file}; complete -C 'tarragon get d'",
    }
    environment = {**shell.environment(), "PATH": f"{shell.folder / 'bin'}:{os.environ['PATH']}"}

    ended = subprocess.run(
        [name, *(["-f"] if name == "zsh" else []), "-c", in_shell[name]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "digits" in ended.stdout, ended.stderr
    assert ended.stderr == ""
