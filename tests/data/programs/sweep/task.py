"""One point of a sweep: a network of some hidden layers learns handwritten digits, TensorBoard is told how well.

Without TensorFlow: a sweep is many such programs, and what is compared is what they write.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import types

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")  # else it imports TensorFlow to write a file

import numpy as np
from sklearn.datasets import load_digits
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

WIDTH = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--hidden-layers", type=int, required=True)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(1)
    sizes = [64, *[WIDTH] * args.hidden_layers, 10]
    layers = [
        (random.standard_normal((before, after)) * (2 / before) ** 0.5, np.zeros(after))
        for before, after in itertools.pairwise(sizes)
    ]
    board = EventFileWriter(args.logdir)
    accuracy = 0.0
    for number in range(args.steps):
        loss, accuracy = step(layers, images / 16.0, labels, args.learning_rate)
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in (("loss", loss), ("accuracy", accuracy))]
        board.add_event(Event(wall_time=float(number), step=number, summary=Summary(value=values)))
    board.close()
    print(f"with {args.hidden_layers} hidden layers at {args.learning_rate}: accuracy {accuracy:.3f}", flush=True)


def step(
    layers: list[tuple[np.ndarray, np.ndarray]], images: np.ndarray, labels: np.ndarray, rate: float
) -> tuple[float, float]:
    """Go down the gradient once; loss and accuracy before that."""
    seen = [images]
    for weights, bias in layers[:-1]:
        seen.append(np.maximum(seen[-1] @ weights + bias, 0.0))
    logits = seen[-1] @ layers[-1][0] + layers[-1][1]
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    here = np.arange(len(labels))
    loss = float(-np.log(likely[here, labels]).mean())
    error = likely.copy()
    error[here, labels] -= 1.0
    error /= len(labels)
    for (weights, bias), given in zip(reversed(layers), reversed(seen), strict=True):
        back = (error @ weights.T) * (given > 0)
        np.subtract(weights, rate * given.T @ error, out=weights)
        np.subtract(bias, rate * error.sum(axis=0), out=bias)
        error = back
    return loss, float((logits.argmax(axis=1) == labels).mean())


if __name__ == "__main__":
    main()
