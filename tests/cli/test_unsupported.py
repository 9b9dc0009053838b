"""What Tarragon can't do yet is told by every command that takes a manifest, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarragon.cli.jobview.jobs import JobName, parse_job_name
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.unsupported_kinds import RUNS
from tests.cli.conftest import Shell
from tests.cli.manifests import worker

pytestmark = pytest.mark.timeout(300)

PYTORCHJOB = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {}\n"
REFUSED = f"  line 2: kind: PyTorchJob (kubeflow.org/v1) is not supported yet; {RUNS}\n"


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
