"""A kind of job is one folder and one entry of the registry: a copy of Tarragon with both runs it, from end to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tarragon
from tarragon.frameworks import registry
from tarragon.frameworks.unsupported_kinds import unsupported_job_kind, unsupported_kind_problem
from tests.frameworks.toy.framework import TOY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

IMPORT = "from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW\n"
ENTRIES = re.compile(r"^(FRAMEWORKS: .* = \(.*)\)$", re.MULTILINE)

PROGRAM = """
import json, os, socket, sys, time

config = json.loads(os.environ["TOY_CONFIG"])
role, helpers = config["me"].partition("-")[0], config["helpers"]
if role == "hub":
    server = socket.create_server(("", int(config["hubs"][0].rpartition(":")[2])))
    seen, leader = set(), None
    while len(seen) < helpers or leader is None:
        connection, _ = server.accept()
        name = connection.makefile().readline().strip()
        leader = connection if name.startswith("leader") else leader
        seen |= {name} if name.startswith("helper") else set()
    leader.sendall(b"all helpers were here\\n")
    time.sleep(600)
host, _, port = config["hubs"][0].rpartition(":")
while True:
    try:
        hub = socket.create_connection((host, int(port)))
        break
    except OSError:
        time.sleep(0.1)
hub.sendall(f"{config['me']}\\n".encode())
if role == "helper":
    time.sleep(600)
print(hub.makefile().readline().strip(), flush=True)
sys.exit("the toy is broken" if "--broken" in sys.argv else 0)
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of Tarragon that has the toy framework, with an embedded cluster of its own."""

    folder: Path

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TARRAGON_")}
        environment = {**kept, "PYTHONPATH": str(self.folder), "TARRAGON_HOME": str(self.folder / "home")}
        command = [sys.executable, "-P", "-m", "tarragon", *words]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def manifest(self, name: str, *arguments: str, suspend: bool = False) -> str:
        container = {"name": "toy", "image": "python:3.12", "command": ["python", "toy.py", *arguments]}
        spec = {"restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
        job = {
            "apiVersion": "example.org/v1",
            "kind": "ToyJob",
            "metadata": {"name": name},
            "spec": {
                "runPolicy": {"suspend": suspend},
                "toyReplicaSpecs": {"Hub": spec, "Helper": {**spec, "replicas": 2}, "Leader": spec},
            },
        }
        (self.folder / f"{name}.json").write_text(json.dumps(job))
        return f"{name}.json"

    def described(self, name: str) -> dict[str, Any]:
        found = self("get", f"toyjob/{name}", "-o", "json")
        assert found.returncode == 0, found.stderr
        job: dict[str, Any] = json.loads(found.stdout)
        return job


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    folder = tmp_path_factory.mktemp("toy")
    source = Path(tarragon.__file__).parent
    shutil.copytree(source, folder / "tarragon", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(__file__).parent / "toy", folder / "tarragon" / "frameworks" / "toy")
    registry = folder / "tarragon" / "frameworks" / "registry.py"
    text = registry.read_text()
    assert text.count(IMPORT) == len(ENTRIES.findall(text)) == 1
    text = text.replace(IMPORT, f"{IMPORT}from tarragon.frameworks.toy.framework import TOY\n")
    registry.write_text(ENTRIES.sub(r"\1, TOY)", text))
    (folder / "toy.py").write_text(PROGRAM)
    copy = Copy(folder)
    yield copy
    copy("down")


def test_a_job_of_another_framework_runs_to_its_end(toy: Copy) -> None:
    ran = toy("run", toy.manifest("fine"))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all helpers were here" in toy("logs", "toyjob/fine").stdout
    status = toy.described("fine")["status"]
    assert status["tarragon"]["state"] == "Succeeded"
    assert {condition["reason"] for condition in status["conditions"]} >= {"ToyJobCreated", "ToyJobSucceeded"}
    assert status["replicaStatuses"]["Leader"]["succeeded"] == 1


def test_its_failure_is_explained_with_what_the_framework_knows(toy: Copy) -> None:
    ran = toy("run", toy.manifest("broken", "--broken"))

    assert ran.returncode == 100
    assert "a toy broke" in ran.stdout + ran.stderr
    assert "repair it" in ran.stdout + ran.stderr


def test_all_commands_know_its_kind_and_its_replica_types(toy: Copy) -> None:
    submitted = toy("submit", toy.manifest("waits", suspend=True))
    assert submitted.returncode == 0, submitted.stderr

    assert "waits" in toy("list").stdout
    scaled = toy("scale", "toyjob/waits", "--replicas", "helper=3")
    assert scaled.returncode == 0, scaled.stderr
    assert toy.described("waits")["spec"]["toyReplicaSpecs"]["Helper"]["replicas"] == 3
    resumed = toy("resume", "toyjob/waits")
    assert resumed.returncode == 0, resumed.stderr
    assert toy("wait", "toyjob/waits").returncode == 0
    assert toy("delete", "toyjob/waits").returncode == 0


def test_a_typo_in_its_manifest_is_reported_with_a_suggestion(toy: Copy) -> None:
    file = toy.folder / toy.manifest("typo")
    file.write_text(file.read_text().replace('"Helper"', '"Helpr"'))

    checked = toy("validate", file.name)

    assert checked.returncode == 2
    assert "did you mean Helper?" in checked.stderr + checked.stdout


def test_a_kind_that_is_named_as_unsupported_is_supported_once_a_framework_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert unsupported_kind_problem("kubeflow.org/v1", "PyTorchJob") is not None
    assert unsupported_job_kind("pytorchjobs") == "PyTorchJob"

    monkeypatch.setattr(registry, "FRAMEWORKS", (*registry.FRAMEWORKS, replace(TOY, kind="PyTorchJob")))

    assert unsupported_kind_problem("kubeflow.org/v1", "PyTorchJob") is None
    assert unsupported_job_kind("pytorchjobs") is None
