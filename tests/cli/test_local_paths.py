from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tarragon.cli.manifest.local_paths import LocalMachine, local_only_files

FILES = {
    "/home/me/digits/train.py",
    "/home/me/digits/run.sh",
    "/home/me/data",
    "/usr/bin/python",
    "/tmp/model",  # noqa: S108 - nothing is written there
    "/home/me/digits/worker",
}
MACHINE = LocalMachine(folder="/home/me/digits", home="/home/me", exists=FILES.__contains__)
ROOTS = LocalMachine(folder="/root/digits", home="/root", exists={"/root/digits/train.py"}.__contains__)
PUBLIC = "tensorflow/tensorflow:2.21.0"
OWN = "registry.example.com/team/digits:7"


def warnings(command: Sequence[str], image: str = PUBLIC, machine: LocalMachine = MACHINE) -> list[str]:
    return messages({"image": image, "command": list(command)}, machine)


def messages(fields: Mapping[str, Any], machine: LocalMachine = MACHINE) -> list[str]:
    container = {"name": "tensorflow", "image": PUBLIC, **fields}
    template = {"spec": {"containers": [container]}}
    return [
        str(each)
        for each in local_only_files({"spec": {"tfReplicaSpecs": {"Worker": {"template": template}}}}, machine)
    ]


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["python", "./train.py", "--steps", "5"],
        ["python", "/home/me/digits/train.py"],
        ["python", "~/digits/train.py"],
        ["bash", "-c", "pip install numpy && python train.py"],
        ["sh", "./run.sh"],
        ["python", "-m", "trainer", "--data=/home/me/data"],
    ],
)
def test_a_file_of_this_machine_that_a_public_image_cannot_have_is_told(command: list[str]) -> None:
    assert len(warnings(command)) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["python", "missing.py"],
        ["python", "/usr/bin/python"],
        ["python", "-m", "trainer", "--output=/tmp/model"],
        ["python", "-c", "print('train.py')"],
        ["python", "-m", "worker"],
        ["bash", "-c", "cd /opt/code && python train.py"],
        ["bash", "-c", "an open 'quote"],
        [],
    ],
)
def test_what_is_not_there_is_the_systems_or_may_mean_something_else_is_not(command: list[str]) -> None:
    assert warnings(command) == []


def test_an_image_of_ones_own_may_have_the_file_by_its_relative_name() -> None:
    assert warnings(["python", "train.py"], OWN) == []
    assert len(warnings(["python", "/home/me/digits/train.py"], OWN)) == 1


@pytest.mark.parametrize(
    "image", ["python:3.11", "docker.io/library/python", "tensorflow/tensorflow@sha256:0", "ubuntu"]
)
def test_public_images_are_known_in_all_their_spellings(image: str) -> None:
    assert len(warnings(["python", "train.py"], image)) == 1


@pytest.mark.parametrize(
    "image", ["me/python:3", "registry.example.com/tensorflow/tensorflow", "tensorflow/serving", ""]
)
def test_what_only_sounds_like_a_public_image_is_none(image: str) -> None:
    assert warnings(["python", "train.py"], image) == []


def test_what_is_mounted_is_brought() -> None:
    absolute = {"command": ["python", "/home/me/digits/train.py"]}
    relative = {"command": ["python", "train.py"]}

    assert messages({**absolute, "volumeMounts": [{"name": "code", "mountPath": "/home/me/digits/"}]}) == []
    assert messages({**relative, "volumeMounts": [{"name": "code", "mountPath": "/code"}], "workingDir": "/code"}) == []
    assert len(messages({**relative, "workingDir": "/elsewhere"})) == 1


def test_the_home_of_root_is_in_every_image() -> None:
    assert warnings(["python", "/root/digits/train.py"], OWN, ROOTS) == []
    assert len(warnings(["python", "/root/digits/train.py"], PUBLIC, ROOTS)) == 1


def test_a_file_is_told_once_with_where_it_is_named_and_what_to_do() -> None:
    container = {"name": "tensorflow", "image": PUBLIC, "command": ["python"], "args": ["train.py"]}
    template = {"spec": {"containers": [container, 5]}}
    job = {"spec": {"tfReplicaSpecs": {kind: {"template": template} for kind in ("PS", "Worker")}}}

    [only] = local_only_files(job, MACHINE)

    assert str(only) == (
        "spec.tfReplicaSpecs.PS.template.spec.containers[0]: uses train.py, which exists on this machine "
        "(/home/me/digits/train.py) but not in the cluster; "
        "add it to the image, or mount it from a volume or a ConfigMap"
    )


@pytest.mark.parametrize("broken", [{"command": 5}, {"command": [5]}, {"volumeMounts": [5]}, {"args": None}])
def test_a_broken_container_is_not_our_business(broken: dict[str, Any]) -> None:
    assert messages(broken) == []
