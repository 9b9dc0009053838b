"""The script of the default parameter servers, as it runs in its container: a program of its own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tarragon.frameworks.tensorflow.replica_list import default_server
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica

CLUSTER = "ps|127.0.0.1:{0};127.0.0.1:{1}"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Where the ConfigMap has put it."""
    path = tmp_path / default_server.SCRIPT
    path.write_text(default_server.script())
    return path


def refused(script: Path, *words: str) -> str:
    """What it says last of arguments that make no sense."""
    command = [sys.executable, str(script), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    return ended.stderr.splitlines()[-1].removeprefix("grpc_tensorflow_server.py: error: ")


def free_ports(count: int) -> Sequence[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--cluster_spec", "ps", "--job_name", "ps"),
            "argument --cluster_spec: 'ps' is not TYPE|HOST:PORT;HOST:PORT",
        ),
        (
            ("--cluster_spec", "ps|a:1;b", "--job_name", "ps"),
            "argument --cluster_spec: 'ps|a:1;b' is not TYPE|HOST:PORT;HOST:PORT",
        ),
        (("--cluster_spec", "ps|a:1,ps|b:1", "--job_name", "ps"), "argument --cluster_spec: ps is there twice"),
        (
            ("--cluster_spec", "ps|a:1", "--job_name", "ps", "--task_id", "1"),
            "there is no ps 1 in --cluster_spec",
        ),
        (("--cluster_spec", "ps|a:1", "--job_name", "worker"), "there is no worker 0 in --cluster_spec"),
        (
            ("--cluster_spec", "ps|a:1", "--job_name", "ps", "--verbose", "maybe"),
            "argument --verbose: must be true or false, not maybe",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_told_before_tensorflow_is_loaded(
    script: Path, words: Sequence[str], message: str
) -> None:
    assert refused(script, *words) == message


def test_it_runs_on_python_2_too(script: Path) -> None:
    """It was seen with TensorFlow 1.3.0 on Python 2.7.18, and with 1.15.5 on 3.7."""
    python = _python_2()
    if python is None:
        pytest.skip("there is no Python 2.7 here")
    ended = subprocess.run(
        [python, str(script), "--cluster_spec", "ps"], capture_output=True, text=True, timeout=30, check=False
    )

    assert "argument --cluster_spec: 'ps' is not TYPE|HOST:PORT;HOST:PORT" in ended.stderr


def test_its_command_finds_a_python_of_either_name(tmp_path: Path) -> None:
    for name in ("python", "python3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).symlink_to(sys.executable)
        (tmp_path / name / "sh").symlink_to("/bin/sh")
        program, *arguments = default_server.command(Replica(PS, 1), "ps|a:1")
        ended = subprocess.run(
            [program, *arguments],
            env={"PATH": str(tmp_path / name)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

        assert "can't open file '/ps-server/grpc_tensorflow_server.py'" in ended.stderr


def _python_2() -> str | None:
    """One that starts: what is called so may be a wrapper that finds none."""
    python = shutil.which("python2.7")
    if python is None:
        return None
    tried = subprocess.run([python, "-c", "pass"], capture_output=True, timeout=30, check=False)
    return python if tried.returncode == 0 else None


@pytest.fixture
def servers(script: Path) -> Iterator[tuple[Sequence[int], Sequence[subprocess.Popen[str]]]]:
    """Two of them, with their ports, that serve."""
    ports = free_ports(2)
    with ExitStack() as ended:
        running = []
        for index in range(2):
            words = ["--cluster_spec", CLUSTER.format(*ports), "--job_name", "ps", "--task_id", str(index)]
            command = [sys.executable, str(script), *words]
            running.append(ended.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
            ended.callback(running[-1].kill)
        for index, server in enumerate(running):
            assert server.stdout is not None
            assert server.stdout.readline() == f"ps {index} serves at grpc://127.0.0.1:{ports[index]}\n"
        yield ports, running


@pytest.mark.tensorflow
@pytest.mark.slow
def test_what_one_replica_writes_the_others_read_until_the_server_is_told_to_end(servers: Any) -> None:
    ports, (first, second) = servers
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        weights = [variable(tf, index) for index in range(2)]
        with tf.Session(f"grpc://127.0.0.1:{ports[0]}") as writer:
            writer.run([each.assign(float(index + 5)) for index, each in enumerate(weights)])
        with tf.Session(f"grpc://127.0.0.1:{ports[1]}") as reader:
            assert reader.run(weights) == [5.0, 6.0]
    for server in (first, second):
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 143


def variable(tf: Any, server: int) -> Any:
    with tf.device(f"/job:ps/task:{server}"):
        return tf.get_variable(f"w{server}", [], initializer=tf.zeros_initializer(), use_resource=False)
