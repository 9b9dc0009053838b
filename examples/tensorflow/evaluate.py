"""Loads the newest checkpoint of a model folder and tests it: python evaluate.py MODEL_DIR."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # the same rounding as in training

import digits
import numpy as np
import tensorflow as tf


def newest_checkpoint(model_dir: str) -> str:
    """The last checkpoint of the newest run that has one. `folder` may also be the folder of a run."""
    runs = sorted(Path(model_dir).glob("run-*"), key=lambda run: int(run.name.rsplit("-", 1)[1]), reverse=True)
    for folder in [Path(model_dir), *runs]:
        if checkpoint := tf.train.latest_checkpoint(str(folder)):
            return str(checkpoint)
    sys.exit(f"no checkpoint in {model_dir}: has the job run, and is this its model folder?")


def values_in(checkpoint: str) -> dict[str, np.ndarray]:
    """All variables by name. TensorFlow 2 stores `w1` of TensorFlow 1 as `w1/.ATTRIBUTES/VARIABLE_VALUE`."""
    reader = tf.train.load_checkpoint(checkpoint)
    keys = [key for key in reader.get_variable_to_shape_map() if not key.startswith("_")]
    return {key.split("/")[0]: reader.get_tensor(key) for key in keys}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python evaluate.py MODEL_DIR")
    checkpoint = newest_checkpoint(sys.argv[1])
    model = values_in(checkpoint)
    _, (images, labels) = digits.load()
    logits = tf.nn.relu(images @ model["w1"] + model["b1"]) @ model["w2"] + model["b2"]
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    accuracy = tf.reduce_mean(tf.cast(tf.argmax(logits, 1) == labels, tf.float32))
    print(f"checkpoint: {checkpoint}")
    if "steps_by_worker" in model:
        print("steps by worker:", " ".join(f"worker-{i}:{steps}" for i, steps in enumerate(model["steps_by_worker"])))
    step = model.get("step", model.get("global_step"))  # its name in TensorFlow 1
    print(f"evaluated: steps={step} loss={loss:.3f} accuracy={accuracy:.3f}")


if __name__ == "__main__":
    main()
