from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tarragon.localcluster.kubelet.images.image_file import read_image_file, read_images
from tarragon.localcluster.kubelet.images.images import (
    Environment,
    ImageMap,
    current_environment,
    missing_command_problem,
)


def images(*patterns: str) -> ImageMap:
    rules = tuple((pattern, Environment(folder=Path(f"/{number}"))) for number, pattern in enumerate(patterns))
    return ImageMap(rules=rules, default=Environment(folder=Path("/default")))


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("tensorflow/tensorflow", "tensorflow/tensorflow"),
        ("tensorflow/tensorflow", "tensorflow/tensorflow:2.21.0"),
        ("tensorflow/tensorflow", "docker.io/tensorflow/tensorflow:2.21.0"),
        ("tensorflow/tensorflow:2.21.0", "tensorflow/tensorflow:2.21.0@sha256:abc"),
        ("python", "docker.io/library/python:3.11"),
        ("gcr.io/kubeflow*", "gcr.io/kubeflow-ci/tf-dist-mnist-test:1.0"),
        ("localhost:5000/train", "localhost:5000/train:latest"),
        ("*", ""),
    ],
)
def test_a_pattern_matches_all_spellings_of_an_image(pattern: str, image: str) -> None:
    assert images(pattern).environment_of(image).folder == Path("/0")


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("tensorflow/tensorflow:2.20", "tensorflow/tensorflow:2.21.0"),
        ("tensorflow", "tensorflow/tensorflow"),
        ("localhost", "localhost:5000/train"),
    ],
)
def test_other_images_map_to_the_default(pattern: str, image: str) -> None:
    assert images(pattern).environment_of(image).folder == Path("/default")


def test_the_first_matching_pattern_applies() -> None:
    assert images("a/b:1", "a/*", "*").environment_of("a/b:1").folder == Path("/0")
    assert images("a/b:1", "a/*", "*").environment_of("a/b:2").folder == Path("/1")


def test_by_default_every_image_maps_to_tarragon_s_environment() -> None:
    programs = ImageMap().environment_of("anything:1").bin_folder

    assert (programs / Path(sys.executable).name).samefile(sys.executable)


def test_a_folder_given_for_an_image_keeps_its_other_settings() -> None:
    known = ImageMap(rules=(("a/b", Environment(folder=Path("/old"), entrypoint=("run",))),))

    environment = known.with_folders({"a/b": Path("/new")}).environment_of("a/b:1")

    assert (environment.folder, environment.entrypoint) == (Path("/new"), ("run",))


def virtualenv(folder: Path) -> Path:
    """The bin folder of a virtualenv with nothing but a Python."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").touch()
    (folder / "pyvenv.cfg").touch()
    return folder / "bin"


def test_an_environment_is_first_on_path_and_no_other_one_is_behind_it(tmp_path: Path) -> None:
    own, other = virtualenv(tmp_path / "own"), virtualenv(tmp_path / "other")
    (tmp_path / "conda/conda-meta").mkdir(parents=True)
    callers = f"{other}:/usr/bin:{tmp_path}/conda/bin::{own}:/bin"

    assert Environment(folder=tmp_path / "own").search_path(callers) == f"{own}:/usr/bin::{own}:/bin"


def test_a_folder_without_python_finds_that_of_the_caller(tmp_path: Path) -> None:
    other = virtualenv(tmp_path / "other")

    assert Environment(folder=tmp_path).search_path(f"{other}:/bin") == f"{tmp_path}:{other}:/bin"


def test_nobody_has_chosen_the_environment_of_tarragon_so_it_hides_none(tmp_path: Path) -> None:
    other, own = virtualenv(tmp_path / "other"), current_environment()

    assert own.search_path(f"{other}:/bin") == f"{own.bin_folder}:{other}:/bin"


def test_python_paths_of_an_image_map_to_the_environment_s_python(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").touch()

    places = Environment(folder=tmp_path, paths={"/app": "src", "/data": "/mnt/data"}).local_paths()

    assert places["/usr/bin/python3"] == places["/usr/local/bin/python3"] == tmp_path / "bin/python3"
    assert "/usr/bin/python" not in places
    assert (places["/app"], places["/data"]) == (tmp_path / "src", Path("/mnt/data"))


def test_a_container_without_a_command_or_known_entrypoint_is_a_problem() -> None:
    problem = missing_command_problem("acme/x:1", [], ImageMap(), "spec.containers[0]")

    assert str(problem) == (
        "spec.containers[0].command: is missing, and the entrypoint of the image acme/x:1 is not known on this "
        "machine; set the command, or map the image in images.yaml: acme/x:1: "
        "{entrypoint: [python, /app/main.py]}"
    )


def test_a_command_or_a_known_entrypoint_is_enough() -> None:
    known = ImageMap(rules=(("acme/x", Environment(folder=Path("/e"), entrypoint=("run",))),))

    assert missing_command_problem("acme/x:1", ["python"], ImageMap(), "") is None
    assert missing_command_problem("acme/x:1", [], known, "") is None


def test_images_yaml_is_read(tmp_path: Path) -> None:
    text = """
    tensorflow/tensorflow: venvs/tf
    acme/*:
      folder: /opt/acme
      entrypoint: [python, /app/main.py]
      workdir: /app
      env: {LEVEL: "3"}
      paths: {/app: src}
    """

    found, problems = read_images(text, tmp_path)

    assert problems == []
    assert found.environment_of("tensorflow/tensorflow:2").folder == tmp_path / "venvs/tf"
    acme = found.environment_of("acme/train:1")
    assert (acme.folder, acme.entrypoint, acme.workdir) == (Path("/opt/acme"), ("python", "/app/main.py"), "/app")
    assert (acme.env, acme.paths) == ({"LEVEL": "3"}, {"/app": "src"})


def test_all_problems_of_images_yaml_are_reported(tmp_path: Path) -> None:
    text = "a: 3\nb: {entrypiont: x}\nc: {entrypoint: python x.py}\nd: {env: {N: 3}}\ne: /fine\n"

    found, problems = read_images(text, tmp_path)

    assert [str(problem) for problem in problems] == [
        "a: must be a folder, or an object with some of folder, entrypoint, workdir, env, paths",
        "b.entrypiont: is not a known field; did you mean entrypoint?",
        "c.entrypoint: must be a list of strings; for example [python, /app/main.py]",
        "d.env: must map strings to strings; put numbers in quotes",
    ]
    assert found.environment_of("e").folder == Path("/fine")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a: {", "is not valid YAML: line 1: expected the node content"),
        (b"a: " + b"[" * 2_000 + b"]" * 2_000, "is not valid YAML: it is nested too deeply"),
        (b"- a\n- b\n", "must map image names to environments"),
        (b"just words", "must map image names to environments"),
        (b"a: /x\nb: /y\na: /z\n", "line 3: duplicate key a"),
        (b"a: {paths: {app: src}}", "app must be an absolute path within the image"),
        (b"\xff\xfe", "can't be read: it is not UTF-8 text"),
        (None, "can't be read: Is a directory"),
    ],
)
def test_an_invalid_images_yaml_is_a_problem(data: bytes | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    if data is None:
        file.mkdir()
    else:
        file.write_bytes(data)

    _, problems = read_image_file(file)

    assert [words in str(problem) for problem in problems] == [True]


def test_without_images_yaml_all_images_map_to_the_default(tmp_path: Path) -> None:
    assert read_image_file(tmp_path / "images.yaml") == (ImageMap(), [])


def test_an_empty_images_yaml_is_valid(tmp_path: Path) -> None:
    assert read_images("", tmp_path) == (ImageMap(), [])
