"""`convert` and `diff` of MPIJobs: as for TFJobs, with the generations and losses of MPI."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tarragon.frameworks.mpi.conversion.generations import GENERATIONS
from tests.cli.conftest import CommandResult, Shell

SHORT = """\
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: pi}
spec:
  replicas: 1
  template:
    spec:
      containers:
        - {name: mpi, image: train, command: [sleep, "0"]}
"""
SSH = "in kubeflow.org/v2beta1 mpirun reaches the workers by SSH, no longer by exec: images without sshd can't run"
TFJOB = """\
---
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: digits}
spec: {tfReplicaSpecs: {Worker: {template: {spec: {containers: [{name: tensorflow, image: train}]}}}}}
"""


def document(ended: CommandResult) -> Any:
    assert ended.code == 0, ended.err
    return yaml.safe_load(ended.out)


@pytest.mark.parametrize("target", GENERATIONS)
def test_an_mpijob_goes_to_every_generation_and_back(shell: Shell, target: str) -> None:
    there = shell("convert", "--to", target, shell.file("pi.yaml", SHORT))
    back = shell("convert", "--to", "kubeflow.org/v1alpha1", "-", stdin=there.out)

    assert document(there)["apiVersion"] == target
    assert document(back) == yaml.safe_load(SHORT)
    assert "lost" not in back.err


def test_what_an_mpijob_loses_is_told_with_its_line(shell: Shell) -> None:
    ended = shell("convert", "--to", "v2beta1", "-", stdin=SHORT)

    assert [line.partition("; ")[0] for line in ended.err.splitlines()] == [
        "MPIJob pi: kubeflow.org/v1alpha1 to kubeflow.org/v2beta1",
        f"lost: line 4: spec: {SSH}",
        "lost: line 4: spec: Worker: it is restarted after every end, even success",
    ]
    assert "lost" not in ended.out


def test_a_generation_that_another_kind_has_is_refused_with_those_of_the_kind(shell: Shell) -> None:
    ended = shell("convert", "--to", "v2beta1", "-", stdin=SHORT + TFJOB)

    assert (ended.code, ended.out) == (2, "")
    assert "TFJobs can't be converted to kubeflow.org/v2beta1; its generations are mlkube.io/v1beta1, " in ended.err


def test_a_version_that_only_other_kinds_have_is_refused_with_those_of_the_kind(shell: Shell) -> None:
    ended = shell("convert", "--to", "v1beta1", "-", stdin=SHORT)

    assert (ended.code, ended.out) == (2, "")
    assert "MPIJobs can't be converted to v1beta1; its generations are kubeflow.org/v1alpha1, " in ended.err


def test_a_version_that_two_groups_of_the_kind_have_needs_its_group(shell: Shell) -> None:
    ended = shell("convert", "--to", "v1beta1", "-", stdin=TFJOB)

    assert (ended.code, ended.out) == (2, "")
    assert "v1beta1 is ambiguous; use mlkube.io/v1beta1 or kubeflow.org/v1beta1" in ended.err


def test_jobs_of_two_kinds_are_converted_to_the_version_that_both_have(shell: Shell) -> None:
    ended = shell("convert", "--to", "v1", "-", stdin=SHORT + TFJOB)

    assert [each["kind"] for each in yaml.safe_load_all(ended.out)] == ["MPIJob", "TFJob"]


def test_a_submitted_mpijob_differs_from_its_file_only_by_edits_in_any_generation(shell: Shell) -> None:
    shell("submit", shell.file("pi.yaml", SHORT))
    same = shell("diff", "pi.yaml")
    converted = shell.file("v1.yaml", shell("convert", "pi.yaml", "--to", "v1").out)
    edited = shell.file("edited.yaml", SHORT.replace("replicas: 1", "replicas: 2"))

    newer, other = shell("diff", converted), shell("diff", edited)

    assert (same.code, same.out) == (0, ""), same.out
    changed = [line for line in newer.out.splitlines()[2:] if line[:1] in "+-"]
    assert changed == ["-apiVersion: kubeflow.org/v1alpha1", "+apiVersion: kubeflow.org/v1"]
    assert [line for line in other.out.splitlines()[2:] if line[:1] in "+-"] == ["-  replicas: 1", "+  replicas: 2"]
