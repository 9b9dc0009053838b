"""A program that only prints is seen: its progress is in the status of its job, and nobody had to watch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.manifests import group, job, python
from tests.e2e.user import User, eventually

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(300)]

KERAS = """
import numpy
import keras
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.fit(numpy.zeros((320, 4)), numpy.zeros(320), batch_size=32, epochs=5)
"""


def test_the_bars_of_keras_are_the_progress_of_a_job_on_the_embedded_cluster(user: User) -> None:
    made = json.loads(job("bars", Worker=group(python(KERAS))))

    assert user("submit", user.file("bars.yaml", json.dumps(made))).code == 0

    def progress() -> Any:
        found = json.loads(user("get", "bars", "-o", "json").out)
        status = found.get("status", {})
        ours = status.get("tarragon", {})
        return ours.get("state") == "Succeeded" and ours.get("progress") and status

    status = eventually(progress)
    found = status["tarragon"]["progress"]
    assert (found["done"], found["total"], found["unit"], found["source"]) == (50, 50, "steps", "log")
    assert status["trainerStatus"]["progressPercentage"] == 100
    assert "loss" in {metric["name"] for metric in status["trainerStatus"]["metrics"]}
