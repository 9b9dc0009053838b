"""Naming another cluster, and what is said where it can't be had: no server is needed for any of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tarragon.localcluster.home.home import Home
from tests.cli.conftest import Shell
from tests.cli.manifests import group, job, worker


def kubeconfig(path: Path, server: str, *contexts: str, current: str = "") -> str:
    """JSON is YAML, too."""
    config = {
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "here", "user": "me", "namespace": "research"}} for name in contexts
        ],
        "current-context": current,
    }
    path.write_text(json.dumps(config))
    return str(path)


@pytest.fixture
def closed() -> Iterator[str]:
    """A server where nobody listens; the port is held, so that nobody else does."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def outside(shell: Shell, closed: str) -> Shell:
    """Somebody with a kubeconfig of two clusters, of which none answers."""
    path = kubeconfig(shell.folder / "kubeconfig", closed, "prod", "staging", current="staging")
    return replace(shell, variables={"KUBECONFIG": path})


def test_a_misspelled_context_is_told_the_nearest_and_all_there_are(outside: Shell) -> None:
    ended = outside("--context", "prd", "list")

    assert ended.code == 1
    what, why, remedy = ended.err.splitlines()
    assert "there is no context 'prd'" in what
    assert "prod, staging" in why
    assert "did you mean" in remedy
    assert "prod" in remedy


@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_dry_run_by_the_client_needs_no_kubeconfig(shell: Shell, command: str) -> None:
    nowhere = replace(shell, variables={"KUBECONFIG": str(shell.folder / "missing")})
    shell.file("job.yaml", worker("digits", "print(1)"))

    ended = nowhere("--context", "prod", command, "job.yaml", "--dry-run")

    assert ended.code == 0
    assert "name: digits-worker-0\n" in ended.out
    assert ended.err == "Nothing was created on context prod (client dry run).\n"


@pytest.mark.parametrize("words", [["run", "job.yaml"], ["run", "job.yaml", "--dry-run=server"], ["list"]])
def test_a_context_without_any_kubeconfig_is_named(shell: Shell, words: list[str]) -> None:
    nowhere = replace(shell, variables={"KUBECONFIG": str(shell.folder / "missing")})
    shell.file("job.yaml", worker("digits", "print(1)"))

    ended = nowhere("--context", "prod", *words)

    assert ended.code == 1
    assert ended.err.splitlines() == [
        "Error: there is no context 'prod'",
        "  there is no kubeconfig, or it has no contexts",
        "  select one with --kubeconfig FILE or KUBECONFIG",
    ]


def test_a_login_program_that_is_not_installed_is_told_with_the_kubeconfigs_hint(outside: Shell) -> None:
    path = Path(outside.variables["KUBECONFIG"])
    config = json.loads(path.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login", "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": {**plugin, "installHint": "get it from example.com"}}
    path.write_text(json.dumps(config))
    ended = outside("--context", "prod", "list")

    assert ended.code == 1
    assert "no-such-login is not installed" in ended.err
    assert ended.err.splitlines()[-1].strip() == "get it from example.com"


@pytest.mark.parametrize(
    "words", [["list"], ["get", "digits"], ["wait", "digits"], ["logs", "digits"], ["delete", "x"]]
)
def test_a_cluster_that_does_not_answer_is_named_with_what_may_help(
    outside: Shell, closed: str, words: list[str]
) -> None:
    ended = outside("--context", "prod", *words)

    assert ended.code == 1
    assert ended.err.splitlines() == [
        f"Error: context prod ({closed}) does not answer",
        f"  cannot connect to {closed}: Connection refused",
        "  check that it is running and reachable from this machine (VPN, proxy, firewall)",
    ]


def test_a_job_for_a_cluster_that_does_not_answer_is_not_run_here_instead(outside: Shell) -> None:
    name = outside.file("job.yaml", worker("digits", "print(1)"))

    ended = outside("--context", "prod", "run", name)

    assert ended.code == 1
    assert "context prod" in ended.err
    assert not Home(outside.home).store_path.exists()


def test_a_cluster_is_named_by_a_variable_a_file_or_a_file_in_a_variable(outside: Shell, closed: str) -> None:
    file = outside.variables["KUBECONFIG"]
    none = replace(outside, variables={"KUBECONFIG": "/nowhere"})

    assert (
        f"context prod ({closed})"
        in replace(outside, variables={**outside.variables, "TARRAGON_CONTEXT": "prod"})("list").err
    )
    assert f"context staging ({closed})" in none("--kubeconfig", file, "list").err
    assert f"context prod ({closed})" in none("list", "--kubeconfig", file, "--context", "prod").err
    assert f"context staging ({closed})" in replace(none, variables={"TARRAGON_KUBECONFIG": file})("list").err


def test_local_is_always_the_embedded_cluster(outside: Shell) -> None:
    named = replace(outside, variables={**outside.variables, "TARRAGON_CONTEXT": "prod"})

    ended = named("--context", "local", "list")

    assert ended.code == 0
    assert "No local cluster exists" in ended.err


def test_a_kubeconfig_of_ones_own_does_not_make_its_cluster_the_default(outside: Shell) -> None:
    assert "No local cluster exists" in outside("list").err


@pytest.mark.parametrize("command", ["up", "down", "kubeconfig"])
def test_what_only_the_embedded_cluster_has_is_refused_for_another_one(outside: Shell, command: str) -> None:
    ended = outside("--context", "prod", command)

    assert ended.code == 1
    assert ended.err.splitlines()[0] == (
        f"Error: `{command}` works only on the embedded cluster of this machine, not on context prod"
    )
    assert "use --context local for the embedded cluster" in ended.err


def test_up_writes_a_kubeconfig_where_all_others_read_one(outside: Shell) -> None:
    going = outside.start("up", "--kubeconfig", "mine")
    going.until("ready")

    listed = outside("--kubeconfig", "mine", "list")
    outside("down")
    going.ended()

    assert (listed.code, listed.err) == (0, "No jobs in namespace default; -A shows all\n")


def test_a_manifest_is_validated_for_a_cluster_without_asking_it(outside: Shell) -> None:
    container = {"name": "tensorflow", "image": "python:3", "command": ["python", "train.py"]}
    outside.file("train.py", "")
    name = outside.file("job.yaml", job("digits", Worker=group(container)))

    here, there = outside("validate", name), outside("validate", name, "--context", "prod")

    assert (here.code, here.err) == (0, "")
    assert (there.code, there.out) == (0, here.out)
    assert there.err.startswith(
        "warning: line 1: spec.tfReplicaSpecs.Worker.template.spec.containers[0]: uses train.py"
    )
