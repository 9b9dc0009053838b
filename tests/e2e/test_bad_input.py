"""What bad input gets from the installed command, where only real processes, disks and clocks can tell."""

from __future__ import annotations

import os
import re
import subprocess
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.manifests import command, group, job, python, worker
from tests.e2e.user import User, ends_all, eventually

pytestmark = pytest.mark.timeout(300)


def test_a_gpu_where_there_is_none_is_said_at_once_and_cpu_only_does_without(user: User) -> None:
    wants = {"limits": {"nvidia.com/gpu": 1}}
    name = user.file("job.yaml", worker("digits", "print('trained')", resources=wants))
    assert user("kubeconfig").code == 0  # so that a cluster runs

    def seconds() -> float:
        began = time.monotonic()
        refused = user.run(name)
        took = time.monotonic() - began
        assert refused.code == 105
        assert "Error: tfjob/digits can never start here: " in refused.err
        assert "nvidia.com/gpu" in refused.err
        return took

    def any_command() -> float:
        """What any command takes just now, which is not what is measured."""
        began = time.monotonic()
        assert user("list").code == 0
        return time.monotonic() - began

    def is_said_at_once() -> bool:
        before, took, after = any_command(), seconds(), any_command()
        return took < 4 * max(before, after) + 1

    assert any(is_said_at_once() for _ in range(3))
    without = user.run(name, "--cpu-only")
    assert without.code == 0
    assert "[worker-0] trained" in without.out


def test_an_environment_without_tensorflow_fails_with_the_command_that_puts_it_there(user: User) -> None:
    venv.create(user.folder / "env", symlinks=True)
    training = worker("digits", "import tensorflow", image="tensorflow/tensorflow:2.21.0")

    ended = user.run(user.file("job.yaml", training), "--image-env", "tensorflow/*=env")

    assert ended.code == 100
    assert "ModuleNotFoundError: No module named 'tensorflow'" in ended.out
    python = f"{user.folder}/env/bin/python"
    assert re.search(rf"{python} .*install .*tensorflow|uv pip install --python {python} .*tensorflow", ended.out)
    assert "Traceback" not in ended.err


def test_one_bad_replica_among_good_ones_is_the_one_that_is_named(user: User) -> None:
    training = job(
        "digits",
        PS=group(python("import time; time.sleep(1000)")),
        Worker=group(command("no-such-program", "--fast"), replicas=2),
    )

    ended = user.run(user.file("job.yaml", training))

    assert ended.code == 100
    assert re.search(r"worker-[01] failed", ended.out)
    assert "command no-such-program not found" in ended.out
    assert "Traceback" not in ended.out + ended.err


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with 64 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a disk that can be filled needs root, and a kernel that lets it mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def owner(tiny_disk: Path, tmp_path: Path) -> Iterator[User]:
    """Their home is on that disk."""
    folder = tmp_path / "work"
    folder.mkdir()
    made = User(folder=folder, home=tiny_disk / "home")
    yield made
    ends_all(made)


def fill(disk: Path, leaving: int = 0) -> Path:
    """Until not a byte is left, but for so many."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass
    os.truncate(filler, max(0, filler.stat().st_size - leaving))
    return filler


def test_a_home_on_a_full_disk_is_refused_before_anything_is_begun(owner: User, tiny_disk: Path) -> None:
    fill(tiny_disk)

    ended = owner.run(owner.file("job.yaml", worker("digits", "print(1)")))

    assert ended.code == 1
    assert "No space left" in ended.err or "full" in ended.err
    assert str(owner.home) in ended.err
    assert "Traceback" not in ended.err


def test_a_disk_that_fills_up_stops_nothing_that_runs_and_when_there_is_room_the_next_job_trains(
    owner: User, tiny_disk: Path
) -> None:
    name = owner.file("job.yaml", worker("digits", "print('trained')"))
    assert owner.run(name).code == 0
    filler = fill(tiny_disk)

    refused = owner.run(name)
    filler.unlink()
    trained = owner.run(name)

    assert refused.code == 1, refused.out + refused.err
    assert "Traceback" not in refused.out + refused.err
    assert re.search("disk|space", refused.err), refused.err
    assert trained.code == 0, trained.err
    assert "[worker-0] trained" in trained.out


@pytest.mark.slow
def test_on_a_full_disk_everything_that_runs_can_still_be_ended(owner: User, tiny_disk: Path) -> None:
    name = owner.file("job.yaml", worker("digits", "print('here', flush=True); import time; time.sleep(1000)"))
    at_once = "spec.tfReplicaSpecs.Worker.template.spec.terminationGracePeriodSeconds=0"
    going = owner.start("run", name, "--set", at_once)
    going.until("here")
    fill(tiny_disk)

    # The server waits half a minute for room to write down how the containers have ended.
    down = owner("down")
    going.ended()

    assert down.code == 0, down.err
    assert "Stopped the local cluster" in down.err
    eventually(lambda: not owner.processes())
