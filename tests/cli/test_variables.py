"""`-e`, `--env-file` and `--image-env`: the variables of replicas, and the environments of images."""

from __future__ import annotations

import dataclasses
import json
import venv

import pytest

from tarragon.cli.manifest.overrides import with_env_sources, with_environment
from tarragon.cli.manifest.variables import omission_note, omitted_variables, split_env_options
from tests.cli.conftest import Shell
from tests.cli.manifests import by_all_workers, command, group, job, mpi_job, python, worker

pytestmark = pytest.mark.timeout(300)

SHOWS = "import os; print('{0}:', os.environ.get('{0}'))"


def shows(*names: str) -> str:
    return "; ".join(SHOWS.format(name) for name in names)


def with_caller(shell: Shell, **variables: str) -> Shell:
    return dataclasses.replace(shell, variables=variables)


def test_variables_of_the_command_line_and_of_files_reach_every_replica(shell: Shell) -> None:
    (shell.folder / "secrets.env").write_text(
        "# for the tracker\nexport TOKEN='a b' # quoted\nURL=http://tracker\nMINE\nLATER=file\n\n"
    )
    user = with_caller(shell, MINE="of the caller", ALSO="passed")
    names = ("TOKEN", "URL", "MINE", "ALSO", "LATER", "MONEY")
    file = user.file("job.yaml", by_all_workers(worker("digits", shows(*names), replicas=2)))

    ended = user(
        "run", file, "--env-file", "secrets.env", "-e", "ALSO", "-e", "LATER=option", "--env", "MONEY=$(TOKEN)$$5"
    )

    assert ended.code == 0, ended.err
    for replica in ("worker-0", "worker-1"):
        for line in (
            "TOKEN: a b",
            "URL: http://tracker",
            "MINE: of the caller",
            "ALSO: passed",
            "LATER: option",
            "MONEY: $(TOKEN)$$5",
        ):
            assert f"[{replica}] {line}" in ended.out


def test_variables_of_a_secret_and_a_config_map_reach_every_replica_and_are_no_part_of_the_job(shell: Shell) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tracker"}, "stringData": {"TOKEN": "s3cret"}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "urls"}, "data": {"URL": "http://tracker"}}
    trains = job("digits", Worker=group(python(shows("TOKEN", "URL"))))
    file = shell.file("job.yaml", "\n---\n".join([json.dumps(secret), json.dumps(config), trains]))

    ended = shell("run", file, "--env-from", "secret/tracker", "--env-from", "configmap/urls")
    stored = shell("get", "digits", "-o", "yaml").out

    assert ended.code == 0, ended.err
    assert "[worker-0] TOKEN: s3cret\n" in ended.out
    assert "[worker-0] URL: http://tracker\n" in ended.out
    assert "s3cret" not in stored


def test_sources_of_variables_are_added_to_those_of_the_manifest_once() -> None:
    former = {"secretRef": {"name": "tracker"}}
    body = json.loads(job("digits", Worker=group(python("", envFrom=[former]))))

    changed = with_env_sources(body, [("secretRef", "tracker"), ("configMapRef", "urls")], "tensorflow")

    (main,) = changed["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert main["envFrom"] == [former, {"configMapRef": {"name": "urls"}}]


@pytest.mark.parametrize("source", ["tracker", "secret/", "secret/Tracker", "pod/tracker"])
def test_what_is_no_source_of_variables_is_said_with_what_is_one(shell: Shell, source: str) -> None:
    ended = shell("run", shell.file("job.yaml", worker("digits", "")), "--env-from", source)

    assert ended.code == 2
    assert "secret/NAME or configmap/NAME" in ended.err or "is not a name of an object: " in ended.err


def test_a_variable_replaces_the_manifests_own_and_spares_other_containers() -> None:
    main = python("", env=[{"name": "A", "valueFrom": {"fieldRef": {}}}, {"name": "B", "value": "kept"}])
    sidecar = {**command("sleep"), "name": "sidecar"}
    body = json.loads(job("digits", Worker=group(main)))
    spec = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["containers"] = [sidecar, main]

    changed = with_environment(body, {"A": "1"}, "tensorflow")

    first, second = changed["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert first == sidecar
    assert second["env"] == [{"name": "B", "value": "kept"}, {"name": "A", "value": "1"}]


def test_launchers_and_workers_get_the_variables() -> None:
    body = json.loads(mpi_job("pi", Launcher=group(command("mpirun")), Worker=group(command("sshd"))))

    changed = with_environment(body, {"A": "1"}, "mpi")

    for each in changed["spec"]["mpiReplicaSpecs"].values():
        assert each["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("pair", "images", "is_folder", "is_image"),
    [
        (("EPOCHS", "3"), ["python:3"], True, False),
        (("python", "env"), ["python:3"], True, True),
        (("python", "env"), ["python:3"], False, False),
        (("python", "env"), ["tensorflow/tensorflow:2"], True, False),
        (("tensorflow/*", "env"), ["python:3"], True, True),
        (("python", ""), ["python:3"], True, False),
    ],
)
def test_the_former_spelling_is_only_taken_for_images_of_the_job(
    pair: tuple[str, str], images: list[str], *, is_folder: bool, is_image: bool
) -> None:
    options = split_env_options([pair], images, lambda _: is_folder)

    assert bool(options.environments) == is_image
    assert bool(options.variables) != is_image


def test_the_former_spelling_of_image_env_works_with_a_note(shell: Shell) -> None:
    environment = shell.folder / "env"
    venv.create(environment, symlinks=True)
    file = shell.file("job.yaml", worker("digits", "import sys; print(sys.prefix)"))

    ended = shell("run", file, "--env", "python=env", "-e", "EPOCHS=3")

    assert f"[worker-0] {environment}" in ended.out
    assert "note: --env IMAGE=FOLDER still works, but is now --image-env: --env sets variables" in ended.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-e", "NOWHERE_SET"), "NOWHERE_SET is not set in your environment; use NOWHERE_SET=VALUE"),
        (("-e", "=3"), "'=3' is not a variable; use KEY=VALUE, or KEY to pass yours"),
        (("-e", "A-B=3"), "'A-B' is not a name of a variable; use letters, digits and '_'"),
        (("-e", "acme/train=nowhere"), "nowhere is not an existing folder"),
        (("-e", "A-B=~nosuch/x"), "'A-B' is not a name of a variable"),
        (("-e", "acme/train=~nosuch/x"), "~nosuch/x is not an existing folder"),
        (("-e", "BROKEN"), "the value of BROKEN is not UTF-8"),
        (("--env-file", "nul.env"), "line 1: A contains a NUL"),
        (("--env-file", "nowhere.env"), "file nowhere.env not found"),
        (("--env-file", "bad.env"), "line 2: 'not a variable' is not KEY=VALUE"),
        (("--env-file", "bad.env"), "line 3: UNSET_HERE has no value, and is not set in your environment"),
        (("--image-env", "python=nowhere"), "nowhere is not an existing folder"),
    ],
)
def test_what_is_no_variable_is_named_before_anything_starts(
    shell: Shell, options: tuple[str, str], words: str
) -> None:
    shell.file("bad.env", "GOOD=1\nnot a variable\nUNSET_HERE\n")
    shell.file("nul.env", "A=1\0x\n")
    user = with_caller(shell, BROKEN="\udcff")
    ended = user("run", shell.file("job.yaml", worker("digits", "print(1)")), "--dry-run", *options)

    assert ended.code == 2
    assert words in ended.err


@pytest.mark.parametrize("value", ["~nosuch/x", "x" * 5000])
def test_a_value_that_looks_like_a_path_is_kept_as_it_is(shell: Shell, value: str) -> None:
    ended = shell("run", shell.file("job.yaml", worker("digits", "print(1)")), "--dry-run", "-e", f"python={value}")

    assert ended.code == 0, ended.err
    assert f"value: {value}" in ended.out


def test_a_dry_run_shows_the_variables(shell: Shell) -> None:
    ended = shell("run", shell.file("job.yaml", worker("digits", "print(1)")), "--dry-run", "-e", "EPOCHS=3")

    assert "name: EPOCHS" in ended.out


def test_variables_that_trainings_expect_and_do_not_get_are_named() -> None:
    body = json.loads(worker("digits", "print(1)", env=[{"name": "HF_TOKEN", "value": "x"}]))

    omitted = omitted_variables(
        body, "tensorflow", {"PYTHONPATH": "lib", "HF_TOKEN": "y", "EDITOR": "vi", "XLA_FLAGS": ""}
    )

    assert omitted == ["PYTHONPATH"]
    assert omission_note(omitted) == "note: replicas don't get your PYTHONPATH; -e PYTHONPATH passes it"
