"""One point of a sweep: a network of some hidden layers learns handwritten digits, TensorBoard is told how well."""

from __future__ import annotations

import argparse
import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from sklearn.datasets import load_digits

WIDTH = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--hidden-layers", type=int, required=True)
    parser.add_argument("--logdir", required=True)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    images, labels = tf.constant(images / 16.0, tf.float32), tf.constant(labels, tf.int64)
    sizes = [64, *[WIDTH] * args.hidden_layers, 10]
    layers = [variables_of(number, *shape) for number, shape in enumerate(itertools.pairwise(sizes))]
    board = tf.summary.create_file_writer(args.logdir)

    def answers() -> tf.Tensor:
        values = images
        for weights, bias in layers[:-1]:
            values = tf.nn.relu(values @ weights + bias)
        return values @ layers[-1][0] + layers[-1][1]

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            logits = answers()
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        variables = [one for layer in layers for one in layer]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(args.learning_rate * gradient)
        return loss, tf.reduce_mean(tf.cast(tf.argmax(logits, 1) == labels, tf.float32))

    accuracy = 0.0
    for number in range(args.steps):
        loss, accuracy = map(float, step())
        tell(board, number, {"loss": loss, "accuracy": accuracy})
    print(f"with {args.hidden_layers} hidden layers at {args.learning_rate}: accuracy {accuracy:.3f}", flush=True)


def variables_of(number: int, before: int, after: int) -> tuple[tf.Variable, tf.Variable]:
    """Weights and bias of a layer."""
    weights = tf.random.stateless_normal([before, after], (1, number)) * (2 / before) ** 0.5
    return tf.Variable(weights), tf.Variable(tf.zeros([after]))


def tell(board: tf.summary.SummaryWriter, step: int, values: dict[str, float]) -> None:
    """As tf.summary.scalar would, which newer TensorFlow has only with the package tensorboard."""
    summary = tf.compat.v1.Summary(
        value=[tf.compat.v1.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    )
    with board.as_default():
        tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)


if __name__ == "__main__":
    main()
