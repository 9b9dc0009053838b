"""What is found out about this machine before anything runs on it."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from tarragon.cli.jobview.leftovers import used_objects
from tarragon.cli.manifest import local_images
from tarragon.cli.targets.embedded_nodes import node_settings, parse_node
from tarragon.cli.targets.environment import (
    InstallTools,
    has_module,
    has_program,
    install_command,
    install_command_for,
    needs_software,
    python_of,
)
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.images.images import Environment, current_environment
from tarragon.localcluster.kubelet.pod import launch


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    folder = tmp_path / "env"
    venv.create(folder, symlinks=True)
    return Environment(folder=folder)


def test_the_kubelet_reads_the_annotations_that_the_command_line_writes() -> None:
    assert local_images.WORKDIR == launch.WORKDIR
    assert local_images.VOLUMES == launch.VOLUMES
    assert local_images.ENVIRONMENTS == launch.ENVIRONMENTS


def test_a_module_is_found_where_it_lies_without_being_imported(environment: Environment) -> None:
    site = next(environment.folder.glob("lib/python3*/site-packages"))
    (site / "tensorflow").mkdir()
    (site / "six.py").touch()

    assert has_module(environment, "tensorflow")
    assert has_module(environment, "six")
    assert not has_module(environment, "torch")
    assert has_module(current_environment(), "click")


def test_of_a_folder_without_python_nobody_knows(tmp_path: Path) -> None:
    assert has_module(Environment(folder=tmp_path), "tensorflow")


def test_the_install_command_names_the_python_of_the_environment(environment: Environment) -> None:
    assert python_of(environment) == f"{environment.folder}/bin/python"
    assert python_of(environment) in install_command_for(environment)


@pytest.mark.parametrize(
    ("command", "is_python"),
    [
        (["python", "train.py"], True),
        (["/usr/bin/python3.11", "-m", "trainer"], True),
        (["bash", "-c", "curl -s http://x | python3 -"], True),
        (["sh", "-c", "echo pythonic"], False),
        (["tf_runner"], False),
    ],
)
def test_a_command_that_starts_a_python_is_recognised(command: list[str], *, is_python: bool) -> None:
    (tensorflow,) = TENSORFLOW.image_software

    assert needs_software(tensorflow, "tensorflow/tensorflow", command) is is_python
    assert not needs_software(tensorflow, "acme/train", command)


@pytest.mark.parametrize(
    ("command", "is_mpirun"),
    [
        (["mpirun", "-n", "2", "python", "train.py"], True),
        (["sh", "-c", "cd /work && mpiexec hello"], True),
        (["/opt/openmpi/bin/mpirun", "hello"], False),
        (["sh", "-c", "echo mpirunner"], False),
    ],
)
def test_a_command_that_starts_an_mpirun_of_the_path_is_recognised(command: list[str], *, is_mpirun: bool) -> None:
    assert needs_software(MPI.image_software[0], "acme/train", command) is is_mpirun


def test_a_program_is_found_in_the_environment_and_on_the_path(environment: Environment) -> None:
    (environment.bin_folder / "mpirun").touch()

    assert has_program(environment, "mpirun")
    assert has_program(environment, "sh")
    assert not has_program(environment, "no-such-program")


def test_what_a_job_uses_is_left_when_it_is_deleted_and_named_once() -> None:
    volumes = [
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "broken"},
        5,
    ]
    template = {"spec": {"containers": [], "volumes": volumes}}

    found = used_objects({"spec": {"tfReplicaSpecs": {"PS": {"template": template}, "Worker": {"template": template}}}})

    assert found == [("ConfigMap", "code"), ("PersistentVolumeClaim", "data")]


def test_a_node_that_was_described_is_strict_and_this_machine_is_not(tmp_path: Path) -> None:
    described = node_settings([parse_node("name=a,cpu=8,memory=16Gi,nvidia.com/gpu=4")], Home(tmp_path))
    machine = node_settings([], Home(tmp_path))

    assert [found.name for found in described] == ["a"]
    assert described[0].capacity["cpu"] == 8000
    assert described[0].overcommitted == frozenset()
    assert len(described[0].gpus) == 4
    assert machine[0].overcommitted == {"cpu"}


@pytest.mark.parametrize(
    ("made", "command"),
    [
        (
            InstallTools(
                folder=Path("/v/tarragon"), python="/v/tarragon/bin/python", has_pip=True, is_pipx=True, uv="uv"
            ),
            "pipx runpip tarragon install",
        ),
        (
            InstallTools(folder=Path("/env"), python="/env/bin/python", has_pip=True, uv="uv"),
            "/env/bin/python -m pip install",
        ),
        (
            InstallTools(
                folder=Path("/uv/tools/tarragon"), python="/uv/tools/tarragon/bin/python", has_pip=False, uv="uv"
            ),
            "uv pip install --python /uv/tools/tarragon/bin/python",
        ),
        (
            InstallTools(
                folder=Path("/a b/.venv"), python="/a b/.venv/bin/python", has_pip=False, uv="/a b/.tools/bin/uv"
            ),
            "'/a b/.tools/bin/uv' pip install --python '/a b/.venv/bin/python'",
        ),
        (
            InstallTools(folder=Path("/env"), python="/env/bin/python", has_pip=False),
            "/env/bin/python -m ensurepip && /env/bin/python -m pip install",
        ),
    ],
    ids=["pipx", "pip", "uv tool", "checkout", "neither pip nor uv"],
)
def test_what_installs_something_is_the_tool_that_made_the_environment(made: InstallTools, command: str) -> None:
    assert install_command(made) == command
