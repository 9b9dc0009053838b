"""Fits a line to points by gradient descent, each worker to its own; the parameters come from the environment."""

from __future__ import annotations

import json
import os
import random

EPOCHS = int(os.environ["EPOCHS"])
RATE = float(os.environ["LEARNING_RATE"])
TASK = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"index": 0})

points = random.Random(TASK["index"])
xs = [points.random() for _ in range(100)]
slope = intercept = 0.0
for _ in range(EPOCHS):
    errors = {x: slope * x + intercept - (2 * x + 1) for x in xs}
    slope -= RATE * sum(error * x for x, error in errors.items()) / len(xs)
    intercept -= RATE * sum(errors.values()) / len(xs)
print(f"worker {TASK['index']}: y = {slope:.2f} x + {intercept:.2f} after {EPOCHS} epochs at {RATE}")
