"""One claim that several jobs share, each in a folder of its own, as the slides of 2018 have it; and what accelerators
bring along.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.manifests import by_all_workers, command, group, job
from tests.e2e.user import User, eventually

pytestmark = pytest.mark.timeout(180)

SEED = Path(__file__).parents[1] / "data" / "manifests" / "003-azurefile.yaml"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "azurefile"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}
VOLUME = {"name": "azurefile", "persistentVolumeClaim": {"claimName": "azurefile"}}


def seed(name: str, folder: str) -> dict[str, Any]:
    """The manifest of the slides, which reads a subPath of the claim, with a command and without its GPU."""
    found: dict[str, Any] = yaml.safe_load(SEED.read_text())
    found["metadata"]["name"] = name
    [container] = found["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", f"echo {name} > /tmp/tensorflow/model; ls /tmp/tensorflow"]
    container["volumeMounts"][0]["subPath"] = folder
    del container["resources"]
    return found


def test_two_jobs_write_to_different_folders_of_one_claim(user: User) -> None:
    first = user.file("first.yaml", yaml.safe_dump_all([CLAIM, seed("first", "kubeflow-gpu")]))
    second = user.file("second.yaml", yaml.safe_dump(seed("second", "runs/second")))
    for name in (first, second):
        ended = user.run(name)
        assert ended.code == 0, ended.err
        assert "[master-0] model" in ended.out

    [claim] = user.home.glob("node/_claims/default/azurefile")
    assert {str(path.relative_to(claim)): path.read_text() for path in claim.rglob("model")} == {
        "kubeflow-gpu/model": "first\n",
        "runs/second/model": "second\n",
    }


def test_every_replica_has_its_own_folder_by_an_expression(user: User) -> None:
    container = command(
        "sh",
        "-c",
        "echo $POD > /out/name",
        env=[{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        volumeMounts=[{"name": "azurefile", "subPathExpr": "runs/$(POD)", "mountPath": "/out"}],
    )
    text = by_all_workers(job("sweep", Worker=group(container, 2, [VOLUME])))
    name = user.file("job.yaml", yaml.safe_dump_all([CLAIM, json.loads(text)]))
    assert user.run(name).code == 0

    [claim] = user.home.glob("node/_claims/default/azurefile")
    assert sorted(path.read_text() for path in claim.glob("runs/*/name")) == ["sweep-worker-0\n", "sweep-worker-1\n"]


def test_a_folder_outside_of_the_volume_is_refused_and_the_job_says_so(user: User) -> None:
    container = command(
        "true",
        env=[{"name": "WHERE", "value": "../elsewhere"}],
        volumeMounts=[{"name": "v", "subPathExpr": "$(WHERE)", "mountPath": "/out"}],
    )
    text = job("outside", Worker=group(container, 2, [{"name": "v", "emptyDir": {}}]))
    assert user("submit", user.file("job.yaml", text)).code == 0

    listed = eventually(lambda: ("CreateContainerConfigError" in (row := user("list").out) and row) or None)
    assert "all 2 workers: failed to prepare subPath" in listed
    assert "'../elsewhere' must be a path within the volume" in listed


def test_who_asks_for_an_accelerator_finds_its_library_and_its_variable(user: User) -> None:
    library = user.folder / "lib"
    library.mkdir()
    (library / "version").write_text("390.46\n")
    brought = {
        "volumes": [{"name": "lib", "hostPath": str(library), "mountPath": "/usr/local/chip"}],
        "envVars": [{"name": "CHIP", "value": "found"}],
    }
    config = user.file("config.yaml", yaml.safe_dump({"accelerators": {"example.com/chip": brought}}))
    serving = user.start(
        "up", "--controller-config-file", config, "--node", "name=a,cpu=4,memory=4Gi,example.com/chip=1"
    )
    serving.until("ready")
    shown = "cat /usr/local/chip/version; echo chip $CHIP"
    with_chip = command("sh", "-c", shown, resources={"limits": {"example.com/chip": 1}})
    ended = user.run(user.file("with.json", job("with", Worker=group(with_chip))))
    assert ended.code == 0, ended.err
    assert "[worker-0] 390.46" in ended.out
    assert "[worker-0] chip found" in ended.out

    without = user.run(user.file("without.json", job("without", Worker=group(command("sh", "-c", "echo chip $CHIP")))))
    assert "[worker-0] chip found" not in without.out
    assert user("down").code == 0
    assert serving.ended().code == 0


def test_a_config_that_can_not_be_meant_starts_no_operator(user: User) -> None:
    config = user.file("config.yaml", "accelerator: {}\naccelerators: [gpu]\n")
    ended = user("up", "--controller-config-file", config)

    assert ended.code == 2
    assert "accelerator: is not a known field; did you mean accelerators?" in ended.err
    assert "accelerators: must map resource names to volumes and envVars" in ended.err
    assert "Traceback" not in ended.err
