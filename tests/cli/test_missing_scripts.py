from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarragon.cli.manifest.missing_scripts import missing_scripts, started_script
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap
from tests.cli.conftest import Shell
from tests.cli.manifests import command, group, job

COMMAND = "spec.tfReplicaSpecs.Worker.template.spec.containers[0].command"
NOBODY = 65534


def problems(folder: Path, images: ImageMap | None = None, *, provided: str = "", **container: Any) -> list[str]:
    pod = {name: container.pop(name) for name in ("initContainers",) if name in container}
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i", **container}], **pod}}
    manifest = {"spec": {"tfReplicaSpecs": {"Worker": {"template": template}}}}
    return [str(each) for each in missing_scripts(manifest, images or ImageMap(), folder, [provided])]


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may look into every folder, so that nothing is found out about others' files."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py"],
        ["/usr/bin/python3.11", "-u", "-X", "dev", "-Wignore", "train.py", "--steps", "3"],
        ["bash", "train.py"],
        ["sh", "-c", "python train.py --data=$DATA && echo done"],
        ["bash", "-ec", "set -x; echo begins && exec python train.py"],
        ["sh", "-c", "export A=1\nB=2 python train.py | tee log"],
        ["mpirun", "-n", "2", "-x", "LD_LIBRARY_PATH", "python", "train.py"],
        ["nohup", "python", "train.py"],
        ["mpirun", "--allow-run-as-root", "-x", "PYSPARK_PYTHON=/usr/bin/python3", "-n", "2", "python", "train.py"],
        ["mpirun", "--mca", "btl", "tcp,self", "-np", "2", "-hostfile", "/etc/mpi/hosts", "python3", "-u", "train.py"],
    ],
)
def test_the_script_is_found_that_a_command_starts_at_once(words: list[str]) -> None:
    assert started_script(words) == "train.py"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["python"],
        ["python", "-m", "train"],
        ["python", "-c", "import train"],
        ["python", "-uc", "import train"],
        ["python", "-"],
        ["python", "$(SCRIPT)"],
        ["sh", "-c", "curl -O http://example.com/train.py && python train.py"],
        ["sh", "-c", "cp /code/*.py . ; python train.py"],
        ["sh", "-c", "cd code && python train.py"],
        ["sh", "-c", "cat > train.py <<EOF\nprint(1)\nEOF\npython train.py"],
        ["sh", "-c", "(cd code; python train.py)"],
        ["sh", "-c", "if true; then python train.py; fi"],
        ["sh", "-c", "python $SCRIPT"],
        ["sh", "-c", "python 'train.py"],
        ["mpirun", "--wdir", "code", "python", "train.py"],
        ["mpirun", "./ring"],
        ["mpirun", "--wdir=code", "python", "train.py"],
        ["mpirun", "-x", "python", "-n", "2", "python", "train.py"],
        ["mpirun", "-n", "2", "bash", "prepare.sh", "python", "train.py"],
        ["mpirun", "--oversubscribe", "prepare.sh", "python", "train.py"],
        ["python", "--check-hash-based-pycs", "always", "train.py"],
        ["python", "-V", "train.py"],
        ["bash", "+x", "train.sh"],
        ["sh", "-c", "env git clone http://example.com/r . ; python train.py"],
        ["sh", "-c", "env X=1 ./generate.sh && python train.py"],
        ["sh", "-c", 'FOO="$(curl -o train.py http://example.com)"; python train.py'],
        ["sh", "-c", "FOO=`curl -o train.py http://example.com`; python train.py"],
        ["sh", "-c", 'echo "`curl -o train.py http://example.com`" && python train.py'],
        ["sh", "-c", 'python train.py "$(curl -o train.py http://example.com)"'],
        ["sh", "-c", "sleep 9; python train.py"],
        ["torchrun", "train.py"],
    ],
)
def test_no_script_is_claimed_where_it_is_not_certain(words: list[str]) -> None:
    assert started_script(words) is None


def test_a_script_that_does_not_exist_is_reported_with_its_folder(tmp_path: Path) -> None:
    assert problems(tmp_path, command=["python", "train.py"]) == [
        (
            f"{COMMAND}: starts train.py, which does not exist in {tmp_path}; "
            "call tarragon in the folder of the script, or set workingDir"
        )
    ]


def test_a_name_that_is_near_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    assert problems(tmp_path, command=["python", "trian.py"]) == [
        f"{COMMAND}: starts trian.py, which does not exist in {tmp_path}; did you mean train.py?"
    ]


def test_a_path_of_the_image_is_reported_as_missing_on_this_machine(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, command=["python", "/var/tf_mnist/mnist.py"])

    assert problem.startswith(f"{COMMAND}: starts /var/tf_mnist/mnist.py, which does not exist on this machine; ")


def test_a_script_in_the_working_directory_exists(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").touch()

    assert problems(tmp_path, command=["python", "train.py"], workingDir="code") == []
    assert problems(tmp_path, command=["python", "code/train.py"]) == []


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["python", "/code/train.py"], "volumeMounts": [{"name": "code", "mountPath": "/code"}]},
        {
            "command": ["python", "train.py"],
            "workingDir": "/code/v1",
            "volumeMounts": [{"name": "code", "mountPath": "/code/"}],
        },
        {"command": ["python", "train.py"], "initContainers": [{"name": "fetch"}]},
        {"command": ["python", "train.py"], "provided": COMMAND.removesuffix(".command")},
    ],
    ids=["mounted", "mounted working directory", "fetched by an init container", "the operator's own command"],
)
def test_a_script_that_something_else_may_provide_is_not_reported(tmp_path: Path, container: dict[str, Any]) -> None:
    assert problems(tmp_path, **container) == []


def test_a_script_to_which_the_image_is_mapped_is_not_reported(tmp_path: Path) -> None:
    images = ImageMap(rules=[("i", Environment(folder=tmp_path, paths={"/app": "code"}))])

    assert problems(tmp_path, images, command=["python", "/app/train.py"]) == []


@pytest.mark.parametrize(
    "name",
    ["x" * 300 + ".py", "x/" * 3000 + "train.py", "\0.py", "\0/train.py"],
    ids=["a long name", "a long path", "a NUL", "a NUL in a folder's name"],
)
def test_a_script_whose_name_no_file_can_have_does_not_exist(tmp_path: Path, name: str) -> None:
    (problem,) = problems(tmp_path, command=["python", name])

    assert problem.startswith(f"{COMMAND}: starts {name}, which does not exist")


def test_a_script_in_a_folder_that_cannot_be_looked_into_may_exist(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir(mode=0)

    with unprivileged():
        assert problems(tmp_path, command=["python", "code/train.py"]) == []


def test_a_misspelled_script_is_refused_before_anything_starts_and_validate_warns(shell: Shell) -> None:
    (shell.folder / "train.py").touch()
    name = shell.file("job.yaml", job("digits", Worker=group(command("python", "trian.py"))))

    refused = shell("run", name)
    validated = shell("validate", name)

    assert refused.code == 2
    assert "starts trian.py, which does not exist in" in refused.err
    assert "did you mean train.py?" in refused.err
    assert validated.code == 0
    assert "warning: " in validated.err
    assert "on this machine: starts trian.py, which does not exist in" in validated.err
