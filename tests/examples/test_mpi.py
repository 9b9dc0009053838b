"""The examples for MPI are files that a cluster and `tarragon run` take alike, and they run with the extra `mpi`."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import CommandResult, shell

__all__ = ["shell"]

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "mpi"
SCRIPTS = {
    "digits.yaml": {"train.py", "digits.py"},
    "elastic.yaml": {"driver.py", "train.py"},
    "ring.yaml": {"ring.py"},
    "ring-v1.yaml": {"ring.py"},
}
FIXED_SIZE = sorted(SCRIPTS.keys() - {"elastic.yaml"})


def documents(name: str) -> tuple[Any, Any]:
    """The scripts and the job."""
    *_, config_map, job = yaml.safe_load_all((FOLDER / name).read_text())
    return config_map, job


def pods(job: Any) -> dict[str, Any]:
    return {kind: spec["template"]["spec"] for kind, spec in job["spec"]["mpiReplicaSpecs"].items()}


def test_there_is_no_example_that_these_tests_do_not_know() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == SCRIPTS.keys()


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_is_its_scripts_and_one_job(name: str) -> None:
    config_map, job = documents(name)

    assert (config_map["kind"], job["kind"]) == ("ConfigMap", "MPIJob")
    assert job["apiVersion"] == ("kubeflow.org/v1" if name == "ring-v1.yaml" else "kubeflow.org/v2beta1")
    assert config_map["metadata"]["name"] == job["metadata"]["name"] + "-scripts"
    assert config_map["data"].keys() == SCRIPTS[name]
    for script, text in config_map["data"].items():
        ast.parse(text, filename=script, feature_version=(3, 8))


@pytest.mark.parametrize("name", SCRIPTS)
def test_launcher_and_workers_have_the_same_image_and_scripts(name: str) -> None:
    config_map, job = documents(name)
    found = pods(job)

    assert found.keys() == {"Launcher", "Worker"}
    assert len({pod["containers"][0]["image"] for pod in found.values()}) == 1
    assert "command" not in found["Worker"]["containers"][0]
    for pod in found.values():
        assert pod["volumes"][0] == {"name": "scripts", "configMap": {"name": config_map["metadata"]["name"]}}
        assert pod["containers"][0]["volumeMounts"][0] == {"name": "scripts", "mountPath": "/opt/train"}


@pytest.mark.parametrize("name", FIXED_SIZE)
def test_mpirun_starts_as_many_ranks_as_the_workers_have_slots(name: str) -> None:
    _, job = documents(name)
    program, option, ranks, *_ = pods(job)["Launcher"]["containers"][0]["command"]

    assert (program, option) == ("mpirun", "-n")
    assert int(ranks) == job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] * job["spec"].get("slotsPerWorker", 1)


def test_what_the_examples_share_is_the_same() -> None:
    assert documents("ring.yaml")[0]["data"] == documents("ring-v1.yaml")[0]["data"]
    assert documents("digits.yaml")[0]["data"]["digits.py"] == (EXAMPLES / "tensorflow" / "digits.py").read_text()


def of_launcher(ended: CommandResult) -> list[str]:
    lines = [line.removeprefix("[launcher-0] ") for line in ended.out.splitlines() if line.startswith("[launcher-0] ")]
    return [line for line in lines if "setpgid" not in line]  # a harmless warning of Open MPI 5


@pytest.mark.mpi
@pytest.mark.timeout(200)
def test_the_ranks_learn_the_digits_together_and_end_with_the_same_weights(shell: Any) -> None:
    pytest.importorskip("sklearn")
    ended = shell("run", str(FOLDER / "digits.yaml"))

    lines = of_launcher(ended)
    assert ended.code == 0, ended.out + ended.err
    assert lines[0] == "data: scikit-learn's digits"
    assert re.fullmatch(r"4 ranks on .* train together", lines[1])
    assert lines[-2:] == [
        "the weights are equal on all 4 ranks",
        "done: steps=1000 loss=0.083 accuracy=0.980",
    ]
    assert re.search(r"^Succeeded  digits-mpi in .*  accuracy 0.980", ended.out, re.MULTILINE)


@pytest.mark.mpi
@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ["ring", "ring-v1"])
def test_a_message_goes_around_the_ring_in_every_size(shell: Any, name: str) -> None:
    ended = shell("run", str(FOLDER / f"{name}.yaml"))

    lines = of_launcher(ended)
    sizes = [int(match[1]) for match in re.finditer(r"step \d+ of 23: +(\d+) bytes", "\n".join(lines))]
    assert ended.code == 0, ended.out + ended.err
    assert lines[0] == "a ring of 3 ranks, 20 rounds of each size"
    assert sizes == [2**power for power in range(23)]
    assert re.fullmatch(r"done: latency_us=[\d.]+ bandwidth_mb_per_s=[\d.]+", lines[-1])


@pytest.mark.mpi
@pytest.mark.timeout(300)
def test_a_worker_that_joins_takes_part_in_the_training(shell: Any) -> None:
    text = (FOLDER / "elastic.yaml").read_text()
    end = "            - /models\n"
    assert text.count(end) == 1
    slower = [end, *(f"            - '{word}'\n" for word in ("--steps", "600", "--step-seconds", "0.02"))]
    # Under the default policy the job would start with all workers that it may have.
    prompt = replace(shell, variables={"TARRAGON_UP_POLICY": "dragon"})
    going = prompt.start("run", prompt.file("job.yaml", text.replace(end, "".join(slower))))
    going.until("step 0 of 600, 2 ranks")
    scaled = prompt("scale", "mj/digits-elastic", "--workers", "3")
    ended = going.ended()

    assert scaled.code == ended.code == 0, ended.out + ended.err
    lines = of_launcher(ended)
    assert "driver: 3 ranks on 3 hosts" in lines[lines.index("driver: the hosts have changed") :]
    assert re.fullmatch(r"done: steps=600 ranks=3 accuracy=0\.9\d+", lines[-1])


def driven(folder: Path, mpirun: str) -> tuple[int, str]:
    """The driver of the elastic example, with a program in place of mpirun. Returns its exit code and what it prints.

    The program knows the file with the hosts as $HOSTS, and that of the result as $RESULT.
    """
    config_map, _ = documents("elastic.yaml")
    (folder / "driver.py").write_text(config_map["data"]["driver.py"])
    (folder / "hosts").write_text("a:1\nb:1\n")
    (folder / "discover.sh").write_text(f"cat {folder}/hosts")
    (folder / "mpirun").write_text(f"#!/bin/sh\n{mpirun}")
    (folder / "mpirun").chmod(0o755)
    variables = {"HOSTS": str(folder / "hosts"), "RESULT": str(folder / "result")}
    words = ["--discover", str(folder / "discover.sh"), "--result", variables["RESULT"], "--", "train"]
    ended = subprocess.run(
        [sys.executable, str(folder / "driver.py"), *words],
        env={"PATH": f"{folder}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_the_driver_starts_again_after_a_success_without_a_result(tmp_path: Path) -> None:
    """Open MPI 5 calls it a success when it loses a worker."""
    code, out = driven(tmp_path, "if grep -q b $HOSTS; then echo a:1 > $HOSTS; else touch $RESULT; fi")

    assert code == 0
    assert out.splitlines() == [
        "driver: 2 ranks on 2 hosts",
        "driver: mpirun has ended with 0, without a result",
        "driver: 1 ranks on 1 hosts",
    ]


def test_the_driver_does_not_start_again_what_was_done_when_the_hosts_changed(tmp_path: Path) -> None:
    code, out = driven(
        tmp_path, 'trap "touch $RESULT; exit 143" TERM; echo a:1 > $HOSTS; while true; do sleep 0.1; done'
    )

    assert code == 0
    assert out.splitlines() == ["driver: 2 ranks on 2 hosts", "driver: the hosts have changed"]


def test_the_result_of_an_earlier_job_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "result").touch()
    code, out = driven(tmp_path, "if grep -q b $HOSTS; then echo a:1 > $HOSTS; else sleep 0.1; touch $RESULT; fi")

    assert code == 0
    assert "driver: mpirun has ended with 0, without a result" in out
