from __future__ import annotations

import re
import signal
import tomllib
from importlib.metadata import packages_distributions

import pytest

from tarragon.cli.targets.extras import LOCAL, OPERATOR, SIMULATE, Extra
from tests.cli.conftest import Shell, shell
from tests.conftest import ROOT
from tests.packages.conftest import Installation

__all__ = ["shell"]

pytestmark = [pytest.mark.xdist_group("packages"), pytest.mark.timeout(400)]  # the first one builds and installs

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: giant}
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {name: tensorflow, image: i, command: [python, -c, pass], resources: {limits: {nvidia.com/gpu: 64}}}
"""
HEAVY = {"numpy", "cryptography", "psutil", "prometheus-client", "scipy"}


def project() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\s<>=!~;]", each)[0] for each in requirements}


@pytest.mark.parametrize("extra", [LOCAL, OPERATOR, SIMULATE], ids=lambda extra: extra.name)
def test_an_extra_brings_what_its_commands_look_for(extra: Extra) -> None:
    distributions = packages_distributions()

    brought = names(project()["optional-dependencies"][extra.name])

    assert {distributions[module][0].lower().replace("_", "-") for module in extra.modules} <= brought


@pytest.mark.parametrize("extra", ["tensorflow", "tensorflow-gpu", "jax", "mpi"])
def test_who_trains_on_this_machine_gets_the_local_cluster_too(extra: str) -> None:
    assert "tarragon[local]" in project()["optional-dependencies"][extra]


def test_the_package_alone_brings_nothing_that_only_schedulers_and_servers_need(bare: Installation) -> None:
    listed = bare("-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))", program="python")

    assert not HEAVY & set(listed.stdout.lower().split())
    assert len(listed.stdout.split()) <= 22


def test_the_package_alone_serves_a_user_of_a_cluster(shell: Shell, bare: Installation) -> None:
    (bare.folder / "job.yaml").write_text(JOB)
    up = shell.start("up", "--kubeconfig", str(bare.folder / "config"))
    up.until("ready")
    context = ("--context", "tarragon")
    kubeconfig = {"KUBECONFIG": str(bare.folder / "config")}
    assert bare(*context, "submit", "job.yaml", extra=kubeconfig).returncode == 0
    assert shell("wait", "giant", "--for", "waiting", "--timeout", "60s").code == 0

    ended = {
        words[0]: bare(*context, *words, extra=kubeconfig)
        for words in (
            ("validate", "job.yaml"),
            ("list",),
            ("get", "giant"),
            ("describe", "giant"),
            ("logs", "giant"),
            ("why", "giant"),
            ("diff", "job.yaml"),
            ("suspend", "giant"),
            ("resume", "giant"),
            ("debug-dump",),
            ("delete", "giant"),
        )
    }

    assert bare(*context, "check", "--operator", extra=kubeconfig).stderr == ""
    up.signal(signal.SIGINT)
    assert up.ended().code == 0
    assert {name: each.stderr for name, each in ended.items() if each.returncode} == {}
    assert "NeverFits" in ended["list"].stdout
    assert "that needs the scheduler; to install it:\n" in ended["why"].stdout
    assert "'tarragon[local]'" in ended["why"].stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("run", "job.yaml"), "local"),
        (("up",), "local"),
        (("node",), "local"),
        (("operator",), "operator"),
        (("simulate", "job.yaml"), "simulate"),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_a_command_that_needs_an_extra_says_how_to_install_it(
    bare: Installation, words: tuple[str, ...], extra: str
) -> None:
    (bare.folder / "job.yaml").write_text(JOB)

    ended = bare(*words)

    assert ended.returncode == 1
    assert f"needs the extra `{extra}`, which is not installed\n" in ended.stderr
    assert f"pip install 'tarragon[{extra}]'\n" in re.sub(r"--python \S+ ", "", ended.stderr)
    assert "Traceback" not in ended.stderr
