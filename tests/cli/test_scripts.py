"""`tarragon run train.py`: from a script to a job in one line, and `tarragon init`."""

from __future__ import annotations

import dataclasses
import json
import re
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tarragon.cli.manifest.script_manifest import ScriptOptions, is_script, name_for, script_manifest
from tests.cli.conftest import Shell
from tests.cli.manifests import worker

pytestmark = pytest.mark.timeout(300)

SCRIPT = """
import json, os, sys
import helper
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task["type"], helper.WHO, sys.argv[1:], os.path.basename(os.getcwd()))
"""
TEXTBOOK = """
import tensorflow as tf
with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = tf.keras.Sequential()
model.fit(data)
"""
UNTIL_TWO_ARE_THERE = """
import os, sys, time
open(sys.argv[1], "w").close()
while not (os.path.exists("a") and os.path.exists("b")):
    time.sleep(0.02)
"""


@pytest.fixture
def script(shell: Shell) -> str:
    shell.file("helper.py", "WHO = 'with helper'")
    return shell.file("train.py", SCRIPT)


def test_a_script_becomes_a_job_of_several_replicas(shell: Shell, script: str) -> None:
    ended = shell("run", script, "--workers", "2", "--cpu", "100m", "--", "--epochs", "3")

    assert ended.code == 0, ended.out + ended.err
    for replica in ("worker-0", "worker-1"):
        assert f"[{replica}] worker with helper ['--epochs', '3'] work" in ended.out
    assert "tfjob/train created" in ended.err


def test_a_dry_run_prints_the_manifest_which_can_be_submitted(shell: Shell, script: str) -> None:
    options = ("--workers", "2", "--ps", "1", "--chief", "--gpus", "1", "--cpu", "2", "--memory", "1Gi", "-e", "A=1")

    printed = shell("run", script, *options, "--dry-run", "-o", "yaml", "--", "--epochs", "3")
    valid = shell("validate", "-", stdin=printed.out)

    assert (printed.code, valid.code) == (0, 0), printed.err + valid.err
    body = yaml.safe_load(printed.out)
    specs = body["spec"]["tfReplicaSpecs"]
    assert {kind: spec["replicas"] for kind, spec in specs.items()} == {"Chief": 1, "PS": 1, "Worker": 2}
    assert specs["Worker"]["template"]["spec"]["containers"] == [
        {
            "name": "tensorflow",
            "image": "tensorflow/tensorflow:2.21.0-gpu",
            "command": ["python", "-u", "train.py"],
            "args": ["--epochs", "3"],
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}},
            "env": [{"name": "A", "value": "1"}],
        }
    ]
    assert "limits" not in specs["PS"]["template"]["spec"]["containers"][0]["resources"]
    assert body["metadata"] == {"name": "train"}


def test_arguments_reach_the_script_as_they_were_typed(shell: Shell) -> None:
    shell.file("$$(A) b.py", "import sys; print(sys.argv[1:])")
    args = ["a$$b", "$(A)", "$$(A)", "--dry-run", "x", "--timeout"]

    ended = shell("run", "$$(A) b.py", "-e", "A=5", "--", *args)

    assert f"[worker-0] {args}" in ended.out


def test_a_second_attempt_with_the_key_of_the_first_starts_no_other_job(shell: Shell) -> None:
    shell.file("wait.py", UNTIL_TWO_ARE_THERE)
    first = shell("submit", "wait.py", "--idempotency-key", "K", "--", "a")
    again = shell("submit", "wait.py", "--idempotency-key", "K", "--", "a")

    assert (first.out, again.out) == ("tfjob/wait\n", "tfjob/wait\n")
    assert "tfjob/wait unchanged: it already exists" in again.err


def test_defaults_for_scripts_do_not_concern_manifests(shell: Shell) -> None:
    user = dataclasses.replace(shell, variables={"TARRAGON_RUN_IMAGE": "acme/train:1"})
    user.file("train.py", "")
    manifest = user.file("job.yaml", worker("digits", "print(1)"))

    assert user("run", manifest, "--dry-run").code == 0
    assert "image: acme/train:1" in user("run", "train.py", "--dry-run").out


def test_a_dry_run_has_the_variables_that_the_script_is_said_to_get(shell: Shell) -> None:
    shell.file(
        "keras.py", "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\ntf.keras.Model().fit()\n"
    )

    printed = shell("run", "keras.py", "--workers", "2", "--dry-run")
    alone = shell("run", "keras.py", "--dry-run")

    assert "TF_USE_LEGACY_KERAS=1 is set" in printed.err
    assert "name: TF_USE_LEGACY_KERAS" in printed.out
    assert "tarragon.dev/workdir" not in printed.out
    assert "TF_USE_LEGACY_KERAS" not in alone.err + alone.out


STRATEGY = "tf.distribute.MultiWorkerMirroredStrategy()"


@pytest.mark.parametrize(
    ("text", "args", "named"),
    [
        ("", ["--data", "data"], "data"),
        ("", ["--data=data", "sizes"], "data and sizes"),
        ("import os\nos.listdir('data')", [], "data"),
        ("PLACE = 'data'\nfor i in range(3): open(f'{PLACE}/{i}'); open(PLACE)", [], "data"),
        ("open(f'data/{1}.csv')", [], "data"),
        ("import os\nopen(os.path.join(os.path.dirname(__file__), 'sizes'))", [], "sizes"),
        ("from pathlib import Path\nPath(__file__).parent / 'data'", [], "data"),
        ("parser.add_argument('--data', default='data')", [], "data"),
    ],
)
def test_data_beside_a_script_is_noted_before_the_script_goes_to_a_cluster(
    shell: Shell, text: str, args: list[str], named: str
) -> None:
    shell.file("train.py", text)
    shell.file("sizes", "3")
    (shell.folder / "data").mkdir()

    here = shell("run", "train.py", "--dry-run", "--", *args)
    there = shell("--context", "prod", "run", "train.py", "--dry-run", "--", *args)

    [note] = [line for line in there.err.splitlines() if "on this machine but" in line]
    assert note.startswith(f"note: {named} exist")
    assert "on this machine but" not in here.err


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("split = 'data'; load(split=split)", ["--", "3", "missing", "-v", "."]),
        ("import os\nos.makedirs('data')\nopen('data')", []),
        ("open('sizes', 'w')", []),
        ("from pathlib import Path\nplace = Path('data')\nplace.mkdir()\nopen(place)", []),
        ("np.save('sizes', 3)\nnp.load('sizes')", []),
        ("from pathlib import Path\nPath('sizes').write_text('3')", []),
        ("open('data')", ["--image", "registry.example.com/own:1"]),
        ("((", []),
    ],
)
def test_what_the_script_may_not_need_of_this_machine_is_not_noted(shell: Shell, text: str, options: list[str]) -> None:
    shell.file("train.py", text)
    shell.file("sizes", "3")
    shell.file("3", "")
    (shell.folder / "data").mkdir()

    assert "on this machine but" not in shell("--context", "prod", "run", "train.py", "--dry-run", *options).err


def test_a_script_that_goes_to_a_cluster_has_the_variables_that_it_needs_there(shell: Shell) -> None:
    shell.file("keras.py", f"import tensorflow as tf\n{STRATEGY}\ntf.keras.Model().fit()\n")

    submit = ("--context", "prod", "run", "keras.py", "--dry-run")
    printed = shell(*submit, "--workers", "2")
    of_user = shell(*submit, "--workers", "2", "-e", "TF_USE_LEGACY_KERAS=0")
    alone = shell(*submit)

    assert "note: TF_USE_LEGACY_KERAS=1 is set in all replicas: Keras 3 can't train a model" in printed.err
    assert "The image must have tf-keras: `tarragon docs howto/scripts#keras-on-several-workers`" in printed.err
    assert "name: TF_USE_LEGACY_KERAS" in printed.out
    assert "TF_USE_LEGACY_KERAS" not in of_user.err
    assert of_user.out.count("TF_USE_LEGACY_KERAS") == 1
    assert "TF_USE_LEGACY_KERAS" not in alone.err + alone.out


def test_a_script_that_imports_keras_itself_is_warned_before_it_goes_to_a_cluster(shell: Shell) -> None:
    shell.file("keras_3.py", f"import keras, tensorflow as tf\n{STRATEGY}\nkeras.Model().fit()\n")

    printed = shell("--context", "prod", "run", "keras_3.py", "--workers", "2", "--dry-run")

    assert "warning: Keras 3 can't train a model under MultiWorkerMirroredStrategy" in printed.err
    assert "import it with `from tensorflow import keras`" in printed.err
    assert "TF_USE_LEGACY_KERAS" not in printed.out


SERVERS = "tf.distribute.experimental.ParameterServerStrategy(resolver)"


@pytest.mark.parametrize(
    ("options", "added"),
    [
        (("--workers", "2"), "add --ps 1 --chief"),
        (("--workers", "2", "--chief"), "add --ps 1"),
        (("--workers", "2", "--ps", "1"), "add --chief"),
        (("--workers", "2", "--ps", "1", "--chief"), ""),
    ],
)
def test_a_script_with_parameter_servers_is_warned_of_a_job_without_them(
    shell: Shell, options: Sequence[str], added: str
) -> None:
    shell.file("ps.py", f"import tensorflow as tf\n{SERVERS}\n")

    printed = shell("run", "ps.py", *options, "--dry-run").err.splitlines()

    warned = [line for line in printed if "ParameterServerStrategy" in line or line.startswith("  add ")]
    assert [line.strip() for line in warned if line.startswith("  add ")] == ([added] if added else [])
    assert bool(warned) == bool(added)


@pytest.mark.parametrize("other", ["SimpleClusterResolver(spec)", "MultiWorkerMirroredStrategy()"])
def test_a_script_that_may_do_without_servers_of_the_job_is_not_warned(shell: Shell, other: str) -> None:
    shell.file("ps.py", f"import tensorflow as tf\n{SERVERS}\ntf.distribute.{other}\n")

    assert "ParameterServerStrategy" not in shell("run", "ps.py", "--workers", "2", "--dry-run").err


def test_two_runs_of_a_script_at_once_have_two_names(shell: Shell) -> None:
    shell.file("wait.py", UNTIL_TWO_ARE_THERE)
    first = shell.start("run", "wait.py", "--", "a")
    first.until_err("Running")
    second = shell("run", "wait.py", "--", "b")

    assert (first.ended().code, second.code) == (0, 0)
    assert "tfjob/wait is still Running, so this job is wait-2" in second.err
    assert re.search(r"^  follow wait   .*tarragon logs wait --follow$", second.err, re.MULTILINE)
    assert re.search(r"^  end wait      .*tarragon delete wait$", second.err, re.MULTILINE)
    assert f"  Both work in {shell.folder}: they share the files there, such as checkpoints.\n" in second.err
    assert "tfjob/wait-2 created" in second.err
    assert "will be replaced" in shell("submit", "wait.py", "--", "a").err


def test_two_runs_in_two_folders_share_no_files(shell: Shell) -> None:
    shell.file("wait.py", UNTIL_TWO_ARE_THERE)
    (shell.folder / "other").mkdir()
    shell.file("other/wait.py", UNTIL_TWO_ARE_THERE)
    assert shell("submit", "wait.py", "--", "a").code == 0

    elsewhere = dataclasses.replace(shell, folder=shell.folder / "other")("submit", "wait.py", "--", "b")

    assert "so this job is wait-2" in elsewhere.err
    assert "Both work in" not in elsewhere.err


def test_a_chosen_name_is_not_changed(shell: Shell) -> None:
    shell.file("wait.py", UNTIL_TWO_ARE_THERE)
    assert shell("submit", "wait.py", "--name", "mine", "--", "a").code == 0

    again = shell("submit", "wait.py", "--name", "mine", "--", "b")

    assert again.code == 1
    assert "tfjob/mine already exists" in again.err


def test_a_shell_script_runs_too(shell: Shell) -> None:
    ended = shell("run", shell.file("train.sh", "echo hello $1 from $0"), "--", "you")

    assert "[worker-0] hello you from train.sh" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trian.py",), "file trian.py not found\n  the current folder is "),
        (("trian.py",), "did you mean train.py?"),
        (("train",), "did you mean train.py?"),
        (("python", "train.py", "3"), "a script needs no python before it; type `run train.py -- 3`"),
        (("python train.py",), "'python train.py' is one argument; type `run train.py`"),
        (("python3 train.py --epochs 3",), "type `run train.py -- --epochs 3`"),
        (("train.py 'a b'",), "type `run train.py -- 'a b'`"),
        (("train.py", "-w", "4"), "-w; did you mean --workers 4? Those of the script follow `--`: `train.py -- -w`"),
        (("train.py", "-w"), "no such option: -w; did you mean --workers? Those of the script"),
        (("train.py", "-c", "4"), "no such option: -c; those of the script follow `--`: `train.py -- -c`"),
        (
            ("train.py", "--epochs", "3"),
            "--epochs; those of the script follow `--`: `train.py -- --epochs`",
        ),
        (
            ("train.py", "-e", "HOME", "0.3"),
            "unexpected argument 0.3; those of the script follow `--`: `train.py -- 0.3`",
        ),
        (("train.py", "--worker", "2"), "no such option: --worker; did you mean --workers?"),
        (("train.py", "--gpus", "many"), "'many' is not a number of GPUs; use for example 1 or 0.5"),
        (("train.py", "--cpu", "2x"), "for '--cpu': '2x' is not a number of CPUs; use for example 2, 0.5 or 500m"),
        (("train.py", "--cpu", "0"), "for '--cpu': '0' is not a number of CPUs"),
        (
            ("train.py", "--memory", "2GB"),
            "for '--memory': '2GB' is not an amount of memory; use for example 500Mi or 2Gi",
        ),
        (("train.py", "--memory", "2"), "for '--memory': '2' means that many bytes; use for example 2Gi"),
        (("train.py", "--name", "My Job"), "metadata.name"),
        (("train.py", "--kind", "jaxjob", "--ps", "1"), "--ps can't be used: JAXJobs have workers only"),
        (("train.py", "--kind", "jaxjob", "--ps", "1"), "leave it out, or use --kind tfjob"),
        (("jaxed.py", "--chief"), "the script's imports suggest a JAXJob"),
        (("job.yaml", "--workers", "3"), "--workers: for scripts only; job.yaml is a manifest"),
        (("job.yaml", "--", "--epochs"), "unexpected arguments after job.yaml: --epochs"),
        (("-f", "job.yaml", "other.yaml"), "give exactly one FILE"),
        (("folder.py",), "folder.py is a folder"),
        ((), "give exactly one FILE"),
        (("train.py", "--", "\udcff"), "its argument '\\udcff' is not UTF-8"),
        (("b\udcff.py",), "'b\\udcff.py' can't be run: its name is not UTF-8"),
    ],
)
def test_what_cannot_be_a_job_is_named_before_anything_starts(
    shell: Shell, script: str, words: tuple[str, ...], said: str
) -> None:
    shell.file("jaxed.py", "import jax")
    (shell.folder / "folder.py").mkdir()

    ended = shell("run", *words)

    assert ended.code == 2
    assert said in ended.err
    assert ". line" not in ended.err


def test_a_file_that_only_looks_a_little_like_it_is_not_suggested(shell: Shell) -> None:
    shell.file("sec.py", "")

    assert "did you mean" not in shell("run", "nosuch.py").err


def test_a_script_in_place_of_a_manifest_is_called_one(shell: Shell, script: str) -> None:
    ended = shell("validate", script)

    assert ended.code == 2
    assert "train.py is a script, not a manifest" in ended.err
    assert f"run {script}` makes a job of it" in ended.err


def test_an_option_file_may_be_a_script_with_arguments(shell: Shell, script: str) -> None:
    printed = shell("run", "-f", script, "--dry-run", "-o", "json", "--", "--epochs", "3")

    [job] = json.loads(printed.out)["items"]
    assert job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] == ["--epochs", "3"]


@pytest.mark.parametrize(
    ("imports", "kind"),
    [
        ("import os", "TFJob"),
        ("import jax.numpy", "JAXJob"),
        ("def f():\n  from mpi4py import MPI", "MPIJob"),
        ("((", "TFJob"),
    ],
)
def test_the_imports_of_a_script_suggest_the_kind_of_job(tmp_path: Path, imports: str, kind: str) -> None:
    (tmp_path / "train.py").write_text("import model")
    (tmp_path / "model.py").write_text(imports)

    [job] = script_manifest(str(tmp_path / "train.py"), ScriptOptions(), is_shipped=False).documents

    assert job["kind"] == kind


def test_mpirun_starts_a_rank_for_each_gpu(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import horovod")
    options = ScriptOptions(workers=2, gpus="4", args=["-x"])

    [job] = script_manifest(str(tmp_path / "train.py"), options, is_shipped=False).documents

    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["command"][:4] == ["mpirun", "-n", "8", "python"]
    assert launcher["args"] == ["-x"]
    assert job["spec"]["slotsPerWorker"] == 4


def test_for_a_cluster_the_script_travels_with_the_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import model, os, package")
    (tmp_path / "model.py").write_text("import layers\nimport train")
    (tmp_path / "layers.py").write_text("# é")
    (tmp_path / "unused.py").write_text("")

    made = script_manifest(str(tmp_path / "train.py"), ScriptOptions(), is_shipped=True)

    code, job = made.documents
    assert code["data"].keys() == {"train.py", "model.py", "layers.py"}
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    assert template["containers"][0]["command"] == ["python", "-u", "/opt/tarragon/script/train.py"]
    assert template["volumes"] == [{"name": "tarragon-script", "configMap": {"name": code["metadata"]["name"]}}]
    assert code["immutable"]
    assert not made.notes


def test_for_a_cluster_packages_beside_the_script_travel_with_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import data.loader, models, torchvision")
    for name, text in (
        ("models/__init__.py", "from . import parts"),
        ("models/parts/net.py", "import utils"),
        ("data/loader.py", "import jax"),
        ("data/images/unread.bin", "\0"),
        ("utils.py", ""),
        ("unused/__init__.py", ""),
        ("torchvision/readme.txt", ""),
        ("models/folder.py/readme.txt", ""),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "models" / ".#net.py").symlink_to("somebody@here.1")

    code, job = script_manifest(str(tmp_path / "train.py"), ScriptOptions(image="acme"), is_shipped=True).documents

    assert job["kind"] == "JAXJob"
    template = job["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]
    (volume,) = template["volumes"]
    paths = {each["key"]: each["path"] for each in volume["configMap"]["items"]}
    assert paths.keys() == code["data"].keys()
    assert sorted(paths.values()) == [
        "data/loader.py",
        "models/__init__.py",
        "models/parts/net.py",
        "train.py",
        "utils.py",
    ]
    assert not any("/" in key for key in paths)


def test_a_script_that_imports_no_tensorflow_needs_none_although_its_image_has_it(shell: Shell) -> None:
    bare = shell.folder / "bare"
    venv.create(bare, symlinks=True)
    (shell.home).mkdir(exist_ok=True)
    (shell.home / "images.yaml").write_text(f"tensorflow/*: {bare}\n")
    shell.file("plain.py", "import numpy, os")
    shell.file("later.py", "def main():\n    import tensorflow")

    plain, later = shell("run", "plain.py", "--dry-run"), shell("run", "later.py", "--dry-run")

    assert "image: tensorflow/tensorflow" in plain.out
    assert "TensorFlow" not in plain.err
    assert "warning: TensorFlow is not installed in" in later.err


def test_a_notebook_is_said_to_be_one(shell: Shell) -> None:
    ended = shell("run", shell.file("train.ipynb", "{}"))

    assert ended.code == 2
    assert "train.ipynb is a notebook" in ended.err
    assert "jupyter nbconvert --to script train.ipynb" in ended.err


@pytest.mark.parametrize("name", ["train.py", "job.yaml"])
def test_a_file_in_place_of_a_command_is_run(shell: Shell, name: str) -> None:
    ended = shell(name)

    assert ended.code == 2
    assert f"unknown command {name}; type `tarragon run {name}`" in ended.err


def test_code_that_differs_travels_under_another_name(tmp_path: Path) -> None:
    """Somebody else's train.py, or a later version, must not change what a running job mounts."""
    script = tmp_path / "train.py"

    def name(text: str, number: int) -> str:
        script.write_text(text)
        code, _ = script_manifest(str(script), ScriptOptions(number=number), is_shipped=True).documents
        return str(code["metadata"]["name"])

    assert name("print(1)", 1) == name("print(1)", 2) != name("print(2)", 1)


def test_a_name_that_no_config_map_can_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "日本.py").touch()

    (problem,) = script_manifest(str(tmp_path / "日本.py"), ScriptOptions(), is_shipped=True).problems

    assert str(problem).startswith("日本.py: can't travel to a cluster: the names of files in a ConfigMap")


def test_a_path_that_is_too_long_for_a_config_map_is_named_with_all_other_problems_before_anything_is_sent(
    shell: Shell,
) -> None:
    folder = f"models/{'m' * 120}/{'n' * 116}"
    (shell.folder / folder).mkdir(parents=True)
    shell.file("train.py", "import models")
    shell.file("models/__init__.py", "")
    shell.file(f"{folder}/fits.py", "")
    shell.file(f"{folder}/a.py", "")
    (shell.folder / "models" / "latin.py").write_bytes(b"\xff")

    refused = shell("--context", "prod", "run", "train.py", "--dry-run", "--set", "spec.runPolicy.backoffLimit=-1")

    assert refused.code == 2
    assert "train.py: 3 problems\n" in refused.err
    assert (
        f"{folder}/fits.py: can't travel to a cluster: its path in a ConfigMap has 255 characters, of at most 253, "
        "where each '/' counts twice; shorten the names of its folders, or build an image that has it\n"
    ) in refused.err
    assert "models/latin.py: is not a text file: byte 0 is not UTF-8; save it as UTF-8\n" in refused.err
    assert "spec.runPolicy.backoffLimit: " in refused.err
    assert "/a.py" not in refused.err


@pytest.mark.parametrize(
    ("content", "words"), [(b"\xff", "byte 0 is not UTF-8"), (b"#" * 2**20, "are too large: 1024 KiB")]
)
def test_what_does_not_fit_into_a_config_map_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "train.py").write_bytes(content)

    (problem,) = script_manifest(str(tmp_path / "train.py"), ScriptOptions(), is_shipped=True).problems

    assert words in str(problem)


def test_torch_is_run_with_a_note_about_what_it_does_not_get(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch")

    made = script_manifest(str(tmp_path / "train.py"), ScriptOptions(), is_shipped=False)

    assert [*made.notes] == [
        "note: train.py runs as a TFJob, without the variables of torch.distributed: PyTorchJob is not supported yet"
    ]


@pytest.mark.parametrize(
    ("file", "name"),
    [("Train_MNIST v2.py", "train-mnist-v2"), ("7b.py", "job-7b"), ("__.py", "job"), (f"{'x' * 80}.py", "x" * 40)],
)
def test_a_jobs_name_is_made_from_the_scripts(file: str, name: str) -> None:
    assert name_for(Path(file)) == name


@pytest.mark.parametrize(
    ("text", "options", "image"),
    [
        ("import os, json", ScriptOptions(), "python:3.13"),
        ("import numpy", ScriptOptions(), "tensorflow/tensorflow:2.21.0"),
        ("import os", ScriptOptions(gpus="1"), "tensorflow/tensorflow:2.21.0-gpu"),
        ("import os", ScriptOptions(image="acme/train:1"), "acme/train:1"),
    ],
)
def test_a_script_that_needs_only_python_has_only_python(
    tmp_path: Path, text: str, options: ScriptOptions, image: str
) -> None:
    (tmp_path / "train.py").write_text(text)

    [job] = script_manifest(str(tmp_path / "train.py"), options, is_shipped=False).documents

    assert job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] == image


def test_manifests_and_addresses_are_no_scripts() -> None:
    assert not any(map(is_script, ("job.yaml", "-", "https://example.com/train.py")))


@pytest.mark.parametrize("kind", ["tfjob", "jaxjob", "mpijob"])
def test_init_writes_a_valid_manifest_with_comments_for_every_kind(shell: Shell, script: str, kind: str) -> None:
    written = shell("init", "--kind", kind, "--workers", "3", "--memory", "1Gi", script, "--", "--epochs", "3")
    valid = shell("validate", "job.yaml")

    assert (written.code, valid.code) == (0, 0), written.err + valid.err
    text = (shell.folder / "job.yaml").read_text()
    assert re.search(r'^ +command: \[.*"python", "-u", "train.py"\]$', text, re.MULTILINE)
    assert '--epochs", "3"]' in text
    assert len(re.findall(r"^ *# [A-Z]", text, re.MULTILINE)) >= 5
    assert "now: tarragon run job.yaml" in written.err


def test_init_sets_what_run_would_set_and_says_why(shell: Shell) -> None:
    shell.file("train.py", TEXTBOOK)
    shell.home.mkdir(mode=0o700)
    environment = shell.folder / "env"
    for package in ("keras-3.15.1", "tf_keras-2.21.0"):
        (environment / f"lib/python3.12/site-packages/{package}.dist-info").mkdir(parents=True)
    (shell.home / "images.yaml").write_text(f"tensorflow/*: {environment}\n")
    options = ("train.py", "--workers", "2", "--ps", "1")

    written = shell("init", *options)
    printed = shell("run", *options, "--dry-run")
    read = shell("run", "job.yaml", "--dry-run")

    text = (shell.folder / "job.yaml").read_text()
    assert yaml.safe_load(text) == yaml.safe_load(printed.out)
    comment = "# TF_USE_LEGACY_KERAS: Keras 3.15.1 can't train a model under MultiWorkerMirroredStrategy, but Keras 2 "
    assert text.count(comment) == 2
    assert "note: TF_USE_LEGACY_KERAS=1 is set in all replicas" in written.err
    assert "TF_USE_LEGACY_KERAS" not in read.err


def test_init_finds_the_script_and_overwrites_nothing(shell: Shell) -> None:
    none = shell("init")
    shell.file("some.py", "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\n")
    assert shell("init").code == 0
    again = shell("init")
    shell.file("other.py", "")
    several = shell("init", "-o", "-")
    shell.file("main.py", "")
    usual = shell("init", "-o", "-")

    assert (none.code, several.code) == (2, 2)
    assert "has no script (.py, .sh)" in none.err
    assert "has other.py, some.py" in several.err
    assert again.code == 1
    assert again.err.startswith("Error: job.yaml already exists")
    assert '"main.py"]' in usual.out
    assert shell("init", "some.py", "--force").code == 0
    assert shell("init", "some.py", "--cpu", "2x", "--force").code == 2


def test_init_takes_what_is_no_script_for_a_mistake(shell: Shell, script: str) -> None:
    ended = shell("init", "trian")

    assert ended.code == 2
    assert "trian is no script" in ended.err
    assert not (shell.folder / "job.yaml").exists()


def test_init_writes_arguments_with_control_characters_as_yaml_can_have_them(shell: Shell, script: str) -> None:
    args = ["a\x7fb", "c\x85d", "e\u2028f", "$(A)"]

    ended = shell("init", script, "--", *args)

    assert ended.code == 0, ended.err
    body = yaml.safe_load((shell.folder / "job.yaml").read_text())
    container = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["args"] == [*args[:3], "$$(A)"]


@pytest.mark.parametrize(("text", "whole"), [("0.0", "0"), ("00", "0"), ("02", "2"), (".50", "0.5")])
def test_gpus_are_written_in_one_form(shell: Shell, script: str, text: str, whole: str) -> None:
    ended = shell("init", script, "-o", "-", "--gpus", text)

    assert ended.code == 0, ended.err
    shown = {"0": "image: python:3.13\n", "2": "nvidia.com/gpu: 2", "0.5": "gpu_request: '0.5'"}
    assert shown[whole] in ended.out


def test_a_written_manifest_runs(shell: Shell, script: str) -> None:
    shell("init", "--workers", "2", script)

    ended = shell("run", "job.yaml")

    assert ended.code == 0, ended.out + ended.err
    assert "[worker-1] worker with helper [] work" in ended.out
