"""What Tarragon can't do yet is told by every command that takes a manifest, before anything is made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tarragon.cli.jobview.jobs import JobName, parse_job_name
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.unsupported_kinds import RUNS
from tests.cli.conftest import Shell
from tests.cli.manifests import worker
from tests.conftest import ROOT

pytestmark = pytest.mark.timeout(300)

KUBESHARE = ROOT / "tests" / "data" / "manifests" / "002-dragon-kubeshare.yaml"
WORDS = "fractions of GPUs are not supported yet; ask for whole GPUs with nvidia.com/gpu, or remove it"
AT_WORKER = "spec.tfReplicaSpecs.Worker.template.metadata.annotations"
PROBLEMS = [
    f"line 6: metadata.annotations.DRAGON_KUBESHARE: {WORDS}",
    *(
        f'line {line}: {AT_WORKER}["kubeshare/{name}"]: {WORDS}'
        for line, name in ((35, "gpu_request"), (36, "gpu_limit"), (37, "gpu_mem"))
    ),
]
PYTORCHJOB = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {}\n"
REFUSED = f"  line 2: kind: PyTorchJob (kubeflow.org/v1) is not supported yet; {RUNS}\n"


def problems(err: str) -> list[str]:
    return [line.strip() for line in err.splitlines() if line.startswith("  line ")]


@pytest.mark.parametrize("command", ["validate", "run", "submit", "diff"])
def test_a_share_of_a_gpu_is_refused_with_every_place_and_nothing_is_started(shell: Shell, command: str) -> None:
    words = [command, "-f", str(KUBESHARE)] if command == "diff" else [command, str(KUBESHARE)]
    ended = shell(*words)

    assert (ended.code, ended.out) == (2, "")
    assert problems(ended.err) == PROBLEMS
    assert not shell.home.exists()


def test_programs_are_told_the_same(shell: Shell) -> None:
    ended = shell("validate", str(KUBESHARE), "-o", "json")

    (found,) = json.loads(ended.out)["files"]
    assert ended.code == 2
    assert found["problems"] == PROBLEMS


def test_converting_it_warns_and_keeps_it(shell: Shell) -> None:
    ended = shell("convert", "-f", str(KUBESHARE), "--to", "kubeflow.org/v1-flat")

    assert ended.code == 0
    assert [line for line in ended.err.splitlines() if WORDS in line] == [f"warning: {problem}" for problem in PROBLEMS]
    template = yaml.safe_load(ended.out)["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    assert template["metadata"]["annotations"]["kubeshare/gpu_request"] == "0.5"


def test_a_job_that_is_to_do_without_gpus_may_have_asked_for_a_share_of_one(shell: Shell) -> None:
    ended = shell("submit", str(KUBESHARE), "--cpu-only", "--dry-run=client")

    assert ended.code == 0, ended.err
    assert "removed 4 GPU requests" in ended.err
    assert "kubeshare" not in ended.out.lower()


@pytest.mark.parametrize("command", ["validate", "run", "submit", "convert", "diff"])
def test_another_kind_of_training_job_is_refused_by_name(shell: Shell, command: str) -> None:
    file = shell.file("job.yaml", PYTORCHJOB)
    more = {"convert": ["--to", "kubeflow.org/v1", "-f", file], "diff": ["-f", file]}
    ended = shell(command, *more.get(command, [file]))

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"Error: job.yaml: 1 problem\n{REFUSED}"


@pytest.mark.parametrize("command", ["validate", "run", "submit"])
def test_another_kind_beside_a_job_keeps_the_job_from_being_submitted(shell: Shell, command: str) -> None:
    file = shell.file("job.yaml", f"{PYTORCHJOB}---\n{worker('digits', 'print(1)')}\n")
    ended = shell(command, file)

    assert (ended.code, ended.out) == (2, "")
    assert REFUSED in ended.err
    assert not shell.home.exists()


@pytest.mark.parametrize("name", ["pytorchjob/a", "PyTorchJobs.kubeflow.org/a"])
def test_a_job_that_is_named_by_another_kind_is_told_so(shell: Shell, name: str) -> None:
    ended = shell("get", name)

    assert ended.code == shell("get", "pod/a").code
    assert ended.err.endswith(f"Error: PyTorchJob is not supported yet\n  {RUNS}\n")


def test_a_folder_of_seeds_is_judged_file_by_file(shell: Shell) -> None:
    folder = Path(shell.folder) / "all"
    folder.mkdir()
    (folder / "a.yaml").write_text(PYTORCHJOB)
    (folder / "b.yaml").write_text(worker("digits", "print(1)"))
    ended = shell("validate", str(folder))

    assert ended.code == 2
    assert REFUSED in ended.err
    assert ended.out.endswith("b.yaml: TFJob digits (kubeflow.org/v1) is valid\n")


@pytest.mark.parametrize("name", ["mpijob/pi", "mpijobs/pi", "mpijobs.kubeflow.org/pi", "mj/pi", "MPIJ/pi"])
def test_a_job_is_found_by_every_name_of_its_kind_that_kubectl_accepts(name: str) -> None:
    assert parse_job_name(name) == JobName([MPI], "pi")
