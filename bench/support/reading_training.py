"""Trains on digits with mpi4py, on whatever ranks there are: the `train.py` of the jobs of `elastic_trainings`.

It is the training of examples/mpi/elastic.yaml, with these differences: each rank waits for its share of each batch, as
for a data store that gives every reader the same rate; the job reports its steps; a checkpoint is as old as a second at
most; and each rank keeps a journal. Before it contributes to a step, it writes the step and the number of its images
into it. So whatever a checkpoint contains is in the journals.

The batches do not depend on the number of ranks, so neither does the model: it tells whether each step counted once.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: sixteen ranks share the cores

import numpy as np

import tarragon

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

BATCH_SIZE = 120
LEARNING_RATE = 0.2
CHECKPOINT_SECONDS = 1.0
CHECKPOINT = "weights.npz"
RESULT = "trained.npz"
"""The driver takes a training without this file for lost."""
JOURNALS = "journals"


def digits() -> tuple[Array, NDArray[np.int64]]:
    """Ten noisy patterns of 64 pixels and their labels: the data of the example where scikit-learn is missing."""
    random = np.random.RandomState(0)
    labels = random.randint(0, 10, 1797)
    images = random.rand(10, 64)[labels] + 0.3 * random.randn(1797, 64)
    return np.hstack([images, np.ones((len(images), 1))]), labels.astype(np.int64)


class Model:
    """Logistic regression. A step is the same on one rank as on several, but for rounding."""

    def __init__(self) -> None:
        self._images, self._labels = digits()
        self.weights = np.zeros((65, 10))

    @staticmethod
    def batch(step: int) -> NDArray[np.int64]:
        return np.random.RandomState(step).randint(0, 1500, BATCH_SIZE).astype(np.int64)

    def gradient(self, share: NDArray[np.int64]) -> Array:
        """Return the sum of the gradients of these images."""
        errors = self._probabilities(share) - np.eye(10)[self._labels[share]]
        gradient: Array = self._images[share].T @ errors
        return gradient

    def apply(self, gradient: Array) -> None:
        self.weights = self.weights - LEARNING_RATE * gradient / BATCH_SIZE

    def loss(self, share: NDArray[np.int64]) -> float:
        return float(-np.log(self._probabilities(share)[np.arange(len(share)), self._labels[share]]).mean())

    def accuracy(self) -> float:
        """Return the part of the images outside of all batches that the model labels correctly."""
        rest = np.arange(1500, len(self._labels))
        return float((self._probabilities(rest).argmax(axis=1) == self._labels[rest]).mean())

    def _probabilities(self, share: NDArray[np.int64]) -> Array:
        scores = self._images[share] @ self.weights
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        probabilities: Array = scores / scores.sum(axis=1, keepdims=True)
        return probabilities


def restore(model: Model, folder: Path) -> int:
    """Load the last checkpoint, if any. Return its step."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0
    with np.load(path) as saved:
        model.weights = saved["weights"]
        return int(saved["step"])


def save(model: Model, step: int, path: Path) -> None:
    """Replace the file at once: a rank may be killed at any moment."""
    partial = path.parent / f"partial-{os.getpid()}.npz"
    np.savez(partial, weights=model.weights, step=step)
    partial.replace(path)


def next_run(folder: Path) -> int:
    """Return the number of this start of all ranks, and create the folder of the journals."""
    journals = folder / JOURNALS
    journals.mkdir(exist_ok=True)
    return max((int(path.name.partition("-")[0]) for path in journals.iterdir()), default=0) + 1


def train(steps: int, image_seconds: float, folder: Path) -> None:
    from mpi4py import MPI  # the program that checks the results needs no MPI

    ranks, model = MPI.COMM_WORLD, Model()
    first = restore(model, folder) if ranks.rank == 0 else 0
    run = next_run(folder) if ranks.rank == 0 else 0
    first, run, model.weights = ranks.bcast((first, run, model.weights))
    saved = time.monotonic()
    with (folder / JOURNALS / f"{run:04}-{ranks.rank:02}").open("w", buffering=1) as journal:
        print(os.environ["HOSTNAME"], first, file=journal)
        for step in range(first, steps):
            batch = model.batch(step)
            share = batch[ranks.rank :: ranks.size]
            time.sleep(len(share) * image_seconds)
            gradient = model.gradient(share)
            print(step, len(share), file=journal)
            model.apply(ranks.allreduce(gradient))
            if ranks.rank:
                continue
            tarragon.report(step=step + 1, of=steps, loss=model.loss(batch), ranks=ranks.size)
            if time.monotonic() - saved > CHECKPOINT_SECONDS or step + 1 == steps:
                save(model, step + 1, folder / CHECKPOINT)
                saved = time.monotonic()
    if ranks.rank == 0:
        save(model, steps, folder / RESULT)
        print(f"done: steps={steps} ranks={ranks.size} accuracy={model.accuracy():.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--image-seconds", type=float, required=True, help="the time to read one image")
    parser.add_argument("--model-dir", type=Path, required=True)
    args = parser.parse_args()
    train(args.steps, args.image_seconds, args.model_dir)


if __name__ == "__main__":
    main()
