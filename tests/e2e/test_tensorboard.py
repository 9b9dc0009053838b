"""TensorBoard beside a job, as a browser finds it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.user import EXAMPLES, User, eventually

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(300)]

WRITES = """\
import sys, time, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")  # it writes without TensorFlow, too
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("/logs/first")
for step in range(3):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
writer.close()
print("written")
"""


def manifest(folder: Path, name: str, **annotations: str) -> str:
    """Of a job that writes a run for a TensorBoard."""
    container: dict[str, Any] = {
        "name": "tensorflow",
        "image": "tensorflow/tensorflow:2.21.0",
        "command": ["python", "-c", WRITES],
        "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
    }
    volumes = [{"name": "logs", "persistentVolumeClaim": {"claimName": f"{name}-logs"}}]
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-logs"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {
            "name": name,
            "annotations": {f"tarragon.dev/{each.replace('_', '-')}": value for each, value in annotations.items()},
        },
        "spec": {
            "runPolicy": {"cleanPodPolicy": "All"},
            "tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container], "volumes": volumes}}}},
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(f"{json.dumps(claim)}\n---\n{json.dumps(job)}\n")
    return str(path)


def address(user: User, name: str) -> str:
    """As `describe` tells it; empty where there is none."""
    found = re.search(r"^TensorBoard:\n  (http://127\.0\.0\.1:\d+)$", user("describe", name).out, re.MULTILINE)
    return found[1] if found else ""


def runs(url: str) -> list[str]:
    """What TensorBoard has found; nothing while it is not there."""
    try:
        with urllib.request.urlopen(f"{url}/data/runs", timeout=10) as answer:  # noqa: S310 - this machine
            found: list[str] = json.load(answer)
            return found
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return []


@contextlib.contextmanager
def forwarded(user: User, target: str, port: int) -> Iterator[str]:
    """Where kubectl makes it one of this machine's."""
    words = ["kubectl", "--kubeconfig", str(user.home / "kubeconfig"), "port-forward", target, f":{port}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=user.environment(), text=True) as forwarding:
        assert forwarding.stdout
        found = re.search(r"127\.0\.0\.1:\d+", forwarding.stdout.readline())
        assert found
        yield f"http://{found[0]}"
        forwarding.terminate()


@pytest.mark.kubectl
def test_it_serves_what_the_job_has_written_until_the_job_is_deleted(user: User, tmp_path: Path) -> None:
    ended = user.run(manifest(tmp_path, "seen", tensorboard="/logs"))
    assert ended.code == 0, ended.err
    url = eventually(lambda: address(user, "seen"))

    assert eventually(lambda: runs(url)) == ["first"]
    for target, port in (("service/seen-tensorboard", 80), ("pod/seen-tensorboard", 6006)):
        with forwarded(user, target, port) as here:
            assert eventually(lambda here=here: runs(here)) == ["first"]  # type: ignore[misc]
    said = user("logs", "seen").out.splitlines()
    assert "[worker-0] written" in said
    assert {line.split()[0] for line in said} == {"[worker-0]"}, "it is no replica"
    (row,) = [line.split()[:3] for line in user("list").out.splitlines() if line.startswith("seen ")]
    assert row == ["seen", "Succeeded", "0/1"]

    assert user("delete", "seen").code == 0
    eventually(lambda: not runs(url))


def test_it_ends_with_the_job_when_asked(user: User, tmp_path: Path) -> None:
    ended = user.run(manifest(tmp_path, "brief", tensorboard="/logs", tensorboard_ends_with_job="true"))
    assert ended.code == 0, ended.err

    eventually(lambda: not any("tensorboard" in command for command in user.processes().values()))
    eventually(lambda: not address(user, "brief"))


def test_one_that_cannot_start_holds_nothing_up(user: User, tmp_path: Path) -> None:
    images = user.home / "images.yaml"
    user.home.mkdir(mode=0o700, exist_ok=True)
    images.write_text("no-such-board: /no/such/folder\n")

    ended = user.run(manifest(tmp_path, "blind", tensorboard="/logs", tensorboard_image="no-such-board"))

    assert ended.code == 0, ended.err


def test_the_example_of_2017_trains_and_its_tensorboard_shows_the_run(user: User) -> None:
    short = (EXAMPLES / "mlkube.yaml").read_text().replace('"6000"', '"300"')
    assert '"300"' in short
    ended = user.run(user.file("mlkube.yaml", short))
    assert ended.code == 0, ended.out + ended.err
    assert re.search(r"Succeeded  digits-mlkube in .*  accuracy 0\.\d+", ended.out)
    assert re.search(r"^\[ps-1\] ps 1 serves at grpc://", ended.out, re.MULTILINE)

    url = eventually(lambda: address(user, "digits-mlkube"))
    assert eventually(lambda: runs(url)) == ["run-1"]
    written = user("get", "digits-mlkube", "-o", "json").out
    assert json.loads(written)["status"]["phase"] == "Done"
