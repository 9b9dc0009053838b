"""`tarragon run` trains every example, and another process finds in the checkpoint what the log has promised.

With fewer steps than a reader of the README sees, who trains the demo as it is (tests/docs/test_story.py). The example
in the style of TensorFlow 1 trains in test_elastic.py, that of workers that march together in test_together.py, while
their replicas come, go and fall.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.conftest import CommandResult
from tests.e2e.user import EXAMPLES, PATIENCE, User

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(400)]


def log_of(replica: str, ended: CommandResult) -> Sequence[str]:
    """Its lines among those of all."""
    prefix = f"[{replica}] "
    return [line.removeprefix(prefix) for line in ended.out.splitlines() if line.startswith(prefix)]


def only(pattern: str, lines: Sequence[str]) -> re.Match[str]:
    """The only line that matches as a whole."""
    (match,) = filter(None, (re.fullmatch(pattern, line) for line in lines))
    return match


def evaluate(folder: str) -> Sequence[str]:
    """What another process says of the newest checkpoint there."""
    command = [sys.executable, str(EXAMPLES / "evaluate.py"), folder]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return run.stdout.splitlines()


def learned(user: User, ended: CommandResult, name: str, leader: str) -> str:
    """The example has learned, says so last, and its checkpoint is as good as it says. The folder of that."""
    assert ended.code == 0, ended.out + ended.err
    accuracy = only(rf"Succeeded  digits-{name} in .*  accuracy (\d\.\d+)(  .*)?", ended.out.splitlines())
    begun = "checkpoints and TensorBoard files: "
    *_, folder = (line.removeprefix(begun) for line in log_of(leader, ended) if line.startswith(begun))
    done = only(r"done: (steps=(\d+) loss=\d\.\d+ accuracy=(\d\.\d+))", log_of(leader, ended))
    evaluated = only("evaluated: (.+)", evaluate(folder))

    assert float(accuracy[1]) >= 0.95
    assert accuracy[1] == done[3]
    assert evaluated[1] == done[1]
    assert folder.startswith(str(user.home))
    assert "data: scikit-learn's digits" in log_of(leader, ended)
    return folder


def trained(user: User, name: str, leader: str, *changes: tuple[str, str]) -> CommandResult:
    """It has learned in one go, and has written what TensorBoard shows."""
    text = (EXAMPLES / f"{name}.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    ended = user.run(user.file(f"{name}.yaml", text))
    folder = learned(user, ended, name, leader)

    assert re.findall(r"^\d\d:\d\d:\d\dZ  (\w+)$", ended.err, re.MULTILINE)[-1] == "Succeeded"
    steps = [int(match[1]) for line in log_of(leader, ended) if (match := re.match(r"step (\d+) of \d+, loss ", line))]
    assert steps
    assert steps == sorted(set(steps))
    (events,) = Path(folder).glob("events.out.tfevents.*")
    assert b"accuracy" in events.read_bytes()
    return ended


def shares(ended: CommandResult, leader: str) -> Sequence[int]:
    """How many steps each worker did, by the count on the parameter server."""
    return [int(each) for each in re.findall(r":(\d+)", only("steps by worker: (.+)", log_of(leader, ended))[1])]


def test_the_demo_trains_and_every_worker_does_its_steps(user: User) -> None:
    ended = trained(user, "ps", "chief-0", ('"4000"', '"1500"'))

    assert len(shares(ended, "chief-0")) == 2
    assert min(shares(ended, "chief-0")) > 0
    assert sum(shares(ended, "chief-0")) >= 1500
    for worker in ("worker-0", "worker-1"):
        assert any(re.match(r"\d+ steps done here", line) for line in log_of(worker, ended))
    described = user("describe", "digits-ps")
    assert "Succeeded" in described.out
    assert str(user.home) in described.out


def test_the_example_of_2017_trains_on_servers_that_its_operator_brings_along(user: User) -> None:
    ended = trained(user, "v1alpha1", "master-0", ('"6000"', '"2000"'))

    variables = only("variables: (.+)", log_of("master-0", ended))[1]
    assert {place.rsplit(" on ", 1)[1] for place in variables.split(", ")} == {"/job:ps/task:0", "/job:ps/task:1"}
    by_replica = only("steps by replica: (.+)", log_of("master-0", ended))[1]
    assert min(int(share) for share in re.findall(r":(\d+)", by_replica)) > 0
    for server in ("ps-0", "ps-1"):
        assert any(re.match(r"ps \d serves at grpc://", line) for line in log_of(server, ended))


def test_the_example_with_a_single_worker_trains(user: User) -> None:
    trained(user, "single", "worker-0", ('"10000"', '"3000"'))
