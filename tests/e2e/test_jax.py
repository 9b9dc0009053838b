"""`tarragon run` trains the JAX example, one of whose processes is killed: all are made anew together."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import CommandResult
from tests.e2e.user import User, eventually, has_file

pytestmark = [pytest.mark.slow, pytest.mark.jax, pytest.mark.timeout(400)]

FILE = Path(__file__).parents[2] / "examples" / "jax" / "digits.yaml"


def lines_of(replica: str, ended: CommandResult) -> list[str]:
    prefix = f"[{replica}] "
    return [line.removeprefix(prefix) for line in ended.out.splitlines() if line.startswith(prefix)]


def shortened(user: User, steps: int, every: int) -> str:
    """The example with fewer steps, and a checkpoint so often."""
    text = FILE.read_text()
    old = '"--steps", "1000"'
    assert text.count(old) == 1
    return user.file("digits.yaml", text.replace(old, f'"--steps", "{steps}", "--checkpoint-steps", "{every}"'))


def accuracy_of(checkpoint: Path) -> str:
    """What another program says of the checkpoint: numpy alone."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    test = np.random.RandomState(0).permutation(len(images))[1500:]
    with np.load(checkpoint) as weights:
        hidden = np.maximum((images[test] / 16).astype("float32") @ weights["w1"] + weights["b1"], 0)
        guesses = (hidden @ weights["w2"] + weights["b2"]).argmax(axis=1)
    return f"{(guesses == labels[test]).mean():.3f}"


def kill(user: User, worker: int) -> None:
    """Kill the program of a worker, not what looks after it."""
    for pid, command in user.processes().items():
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if command.split()[1:2] == ["-u"] and f"PROCESS_ID={worker}".encode() in environment:
            os.kill(pid, signal.SIGKILL)


def test_three_processes_learn_together_and_get_over_the_loss_of_one(user: User) -> None:
    going = user.start("run", shortened(user, steps=400, every=50))
    eventually(lambda: has_file(user.home, "checkpoint.npz"))
    kill(user, worker=1)
    ended = going.ended()

    assert ended.code == 0, ended.out + ended.err
    leader = lines_of("worker-0", ended)
    assert "3 workers train together on 3 cpu devices" in leader
    assert "data: scikit-learn's digits" in leader
    resumed = set(re.findall(r"\[(worker-\d)\] continuing from step (\d+)", ended.out))
    assert {name for name, _ in resumed} == {"worker-0", "worker-1", "worker-2"}
    assert len({step for _, step in resumed}) == 1
    (folder,) = {line.removeprefix("checkpoints: ") for line in leader if line.startswith("checkpoints: ")}
    accuracy = accuracy_of(Path(folder) / "checkpoint.npz")
    assert re.fullmatch(rf"done: steps=400 loss=0\.\d+ accuracy={accuracy}", leader[-1])
    assert float(accuracy) >= 0.9
    assert re.search(rf"^Succeeded  digits-jax in .*  accuracy {accuracy}", ended.out, re.MULTILINE)
    assert lines_of("worker-2", ended)[-1].startswith("ended with steps=400 ")
