"""What is found out about this machine before anything runs on it."""

from __future__ import annotations

import json
import shutil
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from tarragon.cli.jobview.leftovers import used_objects
from tarragon.cli.manifest import local_images
from tarragon.cli.manifest.script_imports import imported_modules, parsed_programs
from tarragon.cli.targets.embedded_nodes import node_settings, parse_node
from tarragon.cli.targets.environment import (
    InstallTools,
    find_program,
    has_module,
    install_command,
    install_command_for,
    misfit_program,
    needs_software,
    python_of,
)
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.meta import JsonObject
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.kubelet.images.images import Environment, ImageMap, current_environment
from tarragon.localcluster.kubelet.pod import launch
from tests.cli.manifests import command, group, job


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

    assert needs_software(tensorflow, "tensorflow/tensorflow", command, frozenset()) is is_python
    assert needs_software(tensorflow, "acme/train", command, frozenset({"tensorflow"})) is is_python
    assert not needs_software(tensorflow, "acme/train", command, frozenset({"numpy"}))


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
    assert needs_software(MPI.image_software[0], "acme/train", command, frozenset()) is is_mpirun


def test_a_program_is_found_in_the_environment_and_on_the_path(environment: Environment) -> None:
    own = executable(environment.bin_folder / "sh")

    assert find_program(environment, "sh") == own
    assert find_program(environment, "cat") == Path(shutil.which("cat") or "")
    assert find_program(environment, "no-such-program") is None


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def add_mpi4py(environment: Environment) -> None:
    (next(environment.folder.glob("lib/python3*/site-packages")) / "mpi4py").mkdir()


MPIRUN = MPI.image_software[0]


def test_an_mpirun_of_another_environment_is_not_found(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = executable(tmp_path / "other/bin/mpirun")
    (tmp_path / "other/pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", str(other.parent))
    add_mpi4py(environment)

    assert find_program(environment, "mpirun") is None
    assert misfit_program(environment, MPIRUN) is None


def test_an_mpirun_of_another_environment_does_not_fit_a_module_of_tarragon_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = executable(tmp_path / "other/bin/no-such-mpirun")
    (tmp_path / "other/pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", str(other.parent))
    software = replace(MPIRUN, program=other.name, shared_library="no-such-library")

    assert misfit_program(current_environment(), replace(software, partner="click")) == other
    assert misfit_program(current_environment(), replace(software, partner="no_such_module")) is None


def test_an_mpirun_of_the_system_fits_an_mpi4py_that_brings_no_mpi(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = executable(tmp_path / "usr/bin/mpirun")
    monkeypatch.setenv("PATH", str(systems.parent))
    add_mpi4py(environment)

    assert misfit_program(environment, MPIRUN) is None
    (environment.folder / "lib/libmpi.so.12").touch()
    assert misfit_program(environment, MPIRUN) == systems
    executable(environment.bin_folder / "mpirun")
    assert misfit_program(environment, MPIRUN) is None


def test_a_module_may_be_one_of_the_system_if_the_environment_uses_those(environment: Environment) -> None:
    settings = environment.folder / "pyvenv.cfg"
    assert not has_module(environment, "torch")

    settings.write_text(settings.read_text().replace("packages = false", "packages = true"))

    assert has_module(environment, "torch")


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import os\nfrom mpi4py import MPI\nimport jax.numpy as jnp", {"os", "mpi4py", "jax"}),
        ("from . import mpi4py\nfrom .mpi4py import x", set()),
        ("try:\n    import mpi4py\nexcept ImportError:\n    pass\ndef f():\n    import jax", set()),
        ("import helper\nimport package", set()),
        ("print 'of Python 2'\nimport mpi4py", set()),
        ("import mpi4py\npattern = '\\d'", {"mpi4py"}),
    ],
)
def test_a_script_needs_what_it_imports_when_it_starts(tmp_path: Path, text: str, modules: set[str]) -> None:
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "helper.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()

    assert imported_modules(["python", "train.py"], tmp_path) == modules


@pytest.mark.parametrize(
    ("command", "is_seen"),
    [
        (["mpirun", "-n", "2", "python", "a folder/train.py"], True),
        (["sh", "-c", "exec mpirun -n 2 python code/train.py --steps 3"], True),
        (["sh", "-c", "python 'code/train.py'; echo done"], True),
        (["sh", "-c", "cd elsewhere && python code/train.py"], False),
        (["python", "/elsewhere/train.py"], False),
        (["python", "code/train.pyc"], False),
        (["python", "code.py"], False),
    ],
)
def test_scripts_are_looked_for_where_the_command_starts(tmp_path: Path, command: list[str], *, is_seen: bool) -> None:
    for name in ("code", "a folder", "code.py"):
        (tmp_path / name).mkdir()
    (tmp_path / "code/train.py").write_text("import mpi4py")
    (tmp_path / "a folder/train.py").write_text("import mpi4py")

    assert (imported_modules(command, tmp_path) == {"mpi4py"}) is is_seen


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


def test_every_node_has_the_storage_of_the_file_system_unless_it_was_described(tmp_path: Path) -> None:
    described = [
        parse_node(f"name={name},cpu=8,memory=16Gi{more}")
        for name, more in (("a", ""), ("b", ",ephemeral-storage=1Gi"))
    ]

    a, b = node_settings(described, Home(tmp_path))
    [machine] = node_settings([], Home(tmp_path))

    size = shutil.disk_usage(tmp_path).total * 1000
    assert (a.capacity["ephemeral-storage"], machine.capacity["ephemeral-storage"]) == (size, size)
    assert b.capacity["ephemeral-storage"] == 2**30 * 1000


@pytest.mark.parametrize(
    ("facts", "label", "size"),
    [
        ("gpu-memory=16Gi", "16384", 16 * 2**30),
        ("gpu-memory=16000M", "15258", 15258 * 2**20),
        ("gpu-memory=16Gi,label:nvidia.com/gpu.memory=1", "1", 2**20),
        ("label:nvidia.com/gpu.memory=15360", "15360", 15 * 2**30),
    ],
)
def test_the_memory_of_a_node_s_gpus_is_a_label_as_that_of_nvidia(
    tmp_path: Path, facts: str, label: str, size: int
) -> None:
    [described] = node_settings([parse_node(f"name=a,cpu=8,memory=16Gi,nvidia.com/gpu=4,{facts}")], Home(tmp_path))

    assert described.labels["nvidia.com/gpu.memory"] == label
    assert described.gpu_memory == size
    assert "gpu-memory" not in described.capacity


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


TEXTBOOK = """
import tensorflow as tf
with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = tf.keras.Sequential()
model.fit(data)
"""


def add_packages(environment: Environment, *names: str) -> None:
    site = next(environment.folder.glob("lib/python3*/site-packages"))
    for name in names:
        (site / f"{name}.dist-info").mkdir()


def tfjob(**container: object) -> JsonObject:
    body: JsonObject = json.loads(
        job("digits", Worker=group({**command("python", "train.py"), "image": "tf", **container}))
    )
    return body


def test_a_script_that_keras_3_cannot_run_gets_keras_2(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXTBOOK)
    add_packages(environment, "keras-3.15.1", "tf_keras-2.21.0")
    images = ImageMap(rules=(("tf", environment),))

    needs = local_images.script_needs(tfjob(), TENSORFLOW, images, tmp_path)

    assert needs.variables == {"TF_USE_LEGACY_KERAS": "1"}
    (note,) = needs.notes
    assert note.startswith("note: TF_USE_LEGACY_KERAS=1 is set in all replicas: Keras 3.15.1 can't train a model")


def test_a_variable_of_the_manifest_or_of_the_image_is_left_as_it_is(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXTBOOK)
    add_packages(environment, "keras-3.15.1", "tf_keras-2.21.0")
    images = ImageMap(rules=(("tf", environment),))
    own = tfjob(env=[{"name": "TF_USE_LEGACY_KERAS", "value": "0"}])
    of_image = ImageMap(rules=(("tf", replace(environment, env={"TF_USE_LEGACY_KERAS": "0"})),))

    for body, known in ((own, images), (tfjob(), of_image)):
        needs = local_images.script_needs(body, TENSORFLOW, known, tmp_path)
        assert not needs.variables
        assert not needs.notes


def test_a_package_that_the_script_needs_can_be_installed_by_the_command_of_the_warning(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TEXTBOOK)
    add_packages(environment, "keras-3.15.1", "tensorflow_cpu-2.21.0")
    images = ImageMap(rules=(("tf", environment),))

    needs = local_images.script_needs(tfjob(), TENSORFLOW, images, tmp_path)

    assert not needs.variables
    (warning,) = needs.notes
    assert warning.startswith("warning: Keras 3.15.1 can't train a model under MultiWorkerMirroredStrategy")
    assert warning.endswith(f"\n  {install_command_for(environment)} --no-deps 'tf-keras==2.21.*'")


@pytest.mark.parametrize(
    ("command", "count"),
    [
        (["python", "train.py"], 3),
        (["python", "-c", "import tensorflow"], 1),
        (["sh", "-c", "exec python -u train.py"], 3),
        (["python", "-m", "train"], 3),
        (["python", "-m", "package"], 1),
        (["python", "-m", "package.task"], 1),
        (["python", "-m", "no.such"], 0),
        (["sh", "-c", "ls -l && echo done"], 0),
    ],
)
def test_a_program_is_its_script_and_the_modules_beside_it(tmp_path: Path, command: list[str], count: int) -> None:
    (tmp_path / "train.py").write_text("def main():\n    import model")
    (tmp_path / "model.py").write_text("import layers\nimport numpy")
    (tmp_path / "layers.py").write_text("import model")
    (tmp_path / "package").mkdir()
    for name in ("__main__.py", "task.py"):
        (tmp_path / "package" / name).touch()

    assert len(parsed_programs(command, tmp_path)) == count
