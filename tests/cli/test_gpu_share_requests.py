"""Every command that takes a manifest reads requests for shares of GPUs, before anything is created."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.conftest import Shell
from tests.conftest import ROOT

pytestmark = pytest.mark.timeout(300)

KUBESHARE = ROOT / "tests" / "data" / "manifests" / "002-dragon-kubeshare.yaml"
AT_WORKER = "spec.tfReplicaSpecs.Worker.template.metadata.annotations"
PROBLEM = f'line 36: {AT_WORKER}["kubeshare/gpu_limit"]: must be 0.5 or more, as kubeshare/gpu_request is, not 0.2'


def invalid(shell: Shell) -> str:
    return shell.file("job.yaml", KUBESHARE.read_text().replace('"1.0"', '"0.2"'))


def test_the_manifest_of_dragon_is_valid(shell: Shell) -> None:
    ended = shell("validate", str(KUBESHARE))

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("002-dragon-kubeshare.yaml: TFJob job1 (kubeflow.org/v1-dragon) is valid\n")


@pytest.mark.parametrize("command", ["validate", "run", "submit", "diff"])
def test_an_invalid_share_is_reported_with_its_line_and_nothing_is_started(shell: Shell, command: str) -> None:
    file = invalid(shell)
    ended = shell(*([command, "-f", file] if command == "diff" else [command, file]))

    assert (ended.code, ended.out) == (2, "")
    assert [line.strip() for line in ended.err.splitlines() if line.startswith("  line ")] == [PROBLEM]
    assert not shell.home.exists()


def test_programs_are_told_the_same(shell: Shell) -> None:
    ended = shell("validate", invalid(shell), "-o", "json")

    (found,) = json.loads(ended.out)["files"]
    assert ended.code == 2
    assert found["problems"] == [PROBLEM]


def test_settings_without_effect_are_warned_of(shell: Shell) -> None:
    text = KUBESHARE.read_text()
    annotations = text[text.index("annotations:\n            ") : text.index("        spec:\n", text.index("gpu_mem"))]
    labels = 'labels: {"sharedgpu/gpu_limit": "1", "sharedgpu/group_name": "a"}\n'
    ended = shell("validate", shell.file("job.yaml", text.replace(annotations, labels)))

    assert ended.code == 0
    assert 'labels["sharedgpu/group_name"]: is ignored: the job itself is scheduled as a gang; remove it' in ended.err


def test_converting_keeps_a_share_without_a_warning_about_it(shell: Shell) -> None:
    ended = shell("convert", "-f", str(KUBESHARE), "--to", "kubeflow.org/v1-flat")

    assert (ended.code, "kubeshare" in ended.err.lower()) == (0, False)
    template = yaml.safe_load(ended.out)["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    assert template["metadata"]["annotations"]["kubeshare/gpu_request"] == "0.5"


def test_a_job_that_is_to_do_without_gpus_may_have_requested_a_share_of_one(shell: Shell) -> None:
    ended = shell("submit", str(KUBESHARE), "--cpu-only", "--dry-run=client")

    assert ended.code == 0, ended.err
    assert "removed 4 GPU requests" in ended.err
    assert "kubeshare" not in ended.out.lower()
