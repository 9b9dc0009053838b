"""`convert`: the jobs of a FILE as another generation has them, the rest as it was, and every loss told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.frameworks.registry import convertible_generations
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS
from tests.cli.conftest import CommandResult, Shell
from tests.conftest import ROOT

SEEDS = sorted(
    path.name
    for path in (ROOT / "tests" / "data" / "manifests").glob("*.yaml")
    if "kind: MPIJob" not in path.read_text()  # test_mpijob_conversion.py converts these
)
FOLDER = ROOT / "tests" / "data" / "manifests"

TWO = """\
# What it trains on.
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: digits}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: kubeflow.org/v1beta2
kind: TFJob
metadata: {name: digits}
spec:
  backoffLimit: 3
  tfReplicaSpecs:
    Chief: &replica
      template: {spec: {containers: [{name: tensorflow, image: train, command: [train]}]}}
    Evaluator: *replica
"""

MASTER = "is a Master in kubeflow.org/v1alpha1: TF_CONFIG calls it master, no longer chief"


def documents(ended: CommandResult) -> list[Any]:
    assert ended.code == 0, ended.err
    return list(yaml.safe_load_all(ended.out))


def generation(shell: Shell, name: str) -> str:
    """Of a job without problems."""
    (judged,) = json.loads(shell("validate", name, "-o", "json").out)["files"]
    assert judged["problems"] == []
    return str(judged["jobs"][0]["generation"])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_manifests_that_it_all_began_with_go_to_every_generation_and_back(shell: Shell, seed: str) -> None:
    original = yaml.safe_load((FOLDER / seed).read_text())
    home = generation(shell, str(FOLDER / seed))

    for name in GENERATIONS:
        there = shell("convert", str(FOLDER / seed), "--to", name)
        if name == "mlkube.io/v1beta1" and "Master" not in str(original) and "MASTER" not in str(original):
            assert there.code == 2
            assert "it can't be converted to mlkube.io/v1beta1" in there.err
            continue
        back = shell("convert", shell.file("there.yaml", there.out), "--to", home)
        if name == "kubeflow.org/v1-dragon" and "Worker" not in there.out:
            assert (there.code, there.out) == (2, "")
            continue

        assert generation(shell, "there.yaml") == name
        assert documents(back) == [original]
        assert not any(line.startswith("lost: ") for line in back.err.splitlines()) or "-extra" not in there.out


def test_other_objects_of_the_file_stay_as_they_are_and_where_they_are(shell: Shell) -> None:
    claim, job = documents(shell("convert", "--to", "kubeflow.org/v1", "-f", shell.file("two.yaml", TWO)))

    assert claim["kind"] == "PersistentVolumeClaim"
    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    assert job["apiVersion"] == "kubeflow.org/v1"
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 3}


def test_what_is_lost_is_told_with_its_line_and_only_on_stderr(shell: Shell) -> None:
    ended = shell("convert", "--to", "kubeflow.org/v1alpha1", "-", stdin=TWO)

    assert [line.partition("; ")[0] for line in ended.err.splitlines()] == [
        "TFJob digits: kubeflow.org/v1beta2 to kubeflow.org/v1alpha1",
        f"lost: line 13: spec.tfReplicaSpecs.Chief: {MASTER}",
        "lost: line 15: spec.tfReplicaSpecs.Evaluator: kubeflow.org/v1alpha1 has no Evaluator: none runs",
        "lost: line 13: spec.tfReplicaSpecs.Chief: any failure fails the job",
    ]
    assert "lost" not in ended.out


def test_json_comes_out_and_goes_in_too(shell: Shell) -> None:
    one = shell("convert", "--to", "kubeflow.org/v1", "-o", "json", str(FOLDER / "001-tf_smoke_gpu.yaml"))
    two = shell("convert", "--to", "kubeflow.org/v1", "-o", "json", "-", stdin=TWO)

    assert json.loads(one.out)["kind"] == "TFJob"
    assert [item["kind"] for item in json.loads(two.out)["items"]] == ["PersistentVolumeClaim", "TFJob"]
    [again] = documents(shell("convert", "--to", "kubeflow.org/v1beta2", "-", stdin=two.out))
    assert again["items"][1] == list(yaml.safe_load_all(TWO))[1]


def test_a_job_that_the_generation_can_t_have_is_refused_in_words(shell: Shell) -> None:
    ended = shell("convert", "--to", "mlkube.io/v1beta1", str(FOLDER / "002-dragon-cpu.yaml"))

    assert (ended.code, ended.out) == (2, "")
    assert "it can't be converted to mlkube.io/v1beta1: spec.replicaSpecs: has no MASTER" in ended.err


def test_a_job_with_problems_is_refused_as_validate_refuses_it(shell: Shell) -> None:
    faulty = TWO.replace("backoffLimit: 3", "backoffLimit: many")
    ended = shell("convert", "--to", "kubeflow.org/v1", "-", stdin=faulty)

    assert ended.code == 2
    assert ended.err == shell("validate", "-", stdin=faulty).err


@pytest.mark.parametrize("version", ["v1", "v1alpha1", "v1-flat"])
def test_a_version_that_only_one_group_has_will_do(shell: Shell, version: str) -> None:
    short, full = (shell("convert", "--to", name, "-", stdin=TWO) for name in (version, f"kubeflow.org/{version}"))

    assert (short.code, short.out, short.err) == (0, full.out, full.err)


def test_the_help_names_every_generation_as_it_can_be_written(shell: Shell) -> None:
    words = shell("convert", "--help").out.replace(",", " ").replace(";", " ").split()

    assert set(convertible_generations()) <= set(words)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("v1beta1", "v1beta1 is ambiguous; use mlkube.io/v1beta1 or kubeflow.org/v1beta1"),
        ("kubeflow.org/v1alpa1", "did you mean kubeflow.org/v1alpha1?"),
        ("batch/v1", "use one of mlkube.io/v1beta1, "),
    ],
)
def test_a_generation_that_nobody_knows_is_told_the_nearest(shell: Shell, name: str, meant: str) -> None:
    ended = shell("convert", "--to", name, "-", stdin=TWO)

    assert ended.code == 2
    assert meant in ended.err


def test_a_file_without_a_job_and_a_missing_target_are_told(shell: Shell) -> None:
    claim = TWO.partition("---")[0]

    assert "the manifest has no job" in shell("convert", "--to", "kubeflow.org/v1", "-", stdin=claim).err
    assert "Missing option '--to'" in shell("convert", "-", stdin=claim).err


def test_an_unknown_field_travels_and_is_told(shell: Shell) -> None:
    ended = shell("convert", "--to", "kubeflow.org/v1", "-", stdin=TWO.replace("backoffLimit", "backofLimit"))

    assert documents(ended)[1]["spec"]["backofLimit"] == 3
    assert "warning: line 11: spec.backofLimit: unknown field, kept unchanged; did you mean backoffLimit?" in ended.err


def test_what_a_server_filled_in_is_left_out(shell: Shell, tmp_path: Path) -> None:
    job = yaml.safe_load((FOLDER / "001-tf_smoke_gpu.yaml").read_text())
    job["metadata"] |= {"uid": "1", "resourceVersion": "2", "generation": 1, "managedFields": [], "namespace": "n1"}
    job["metadata"]["annotations"] = {"tarragon.dev/generation": "kubeflow.org/v1alpha1"}
    job |= {"status": {"phase": "Done"}, "apiVersion": "kubeflow.org/v1"}

    [there] = documents(shell("convert", "--to", "kubeflow.org/v1beta1", "-", stdin=json.dumps(job)))
    [same] = documents(shell("convert", "--to", "kubeflow.org/v1alpha1", "-", stdin=json.dumps(job)))

    assert set(there) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(there["metadata"]) == {"name", "namespace", "annotations"}
    assert set(there["metadata"]["annotations"]) == {"tarragon.dev/v1alpha1-extra"}
    assert same["apiVersion"] == "kubeflow.org/v1alpha1"
    assert same["metadata"] == {"name": "tf-smoke-gpu", "namespace": "n1"}
