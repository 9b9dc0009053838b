"""What images of 2018 had in them: asynchronous training over parameter servers, told by TF_CONFIG who it is.

The master and each worker fit a line with variables that the servers hold; a server serves until it is ended. A job of
one replica trains alone. With --job-dir it goes on from the checkpoint that it finds there.
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--training_steps", type=int, default=300)
    parser.add_argument("--job-dir", default="")
    args = parser.parse_args()
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    cluster = config.get("cluster", {})
    kind, index = config.get("task", {}).get("type", "master"), config.get("task", {}).get("index", 0)
    print(f"{kind} {index} of {sum(map(len, cluster.values())) or 1}", flush=True)
    if not cluster.get("ps"):
        train(args, "", None, name=f"{kind} {index}")
        return
    server = tf.train.Server(cluster, job_name=kind, task_index=index)
    if kind == "ps":
        server.join()
    placed = tf.train.replica_device_setter(worker_device=f"/job:{kind}/task:{index}", cluster=cluster)
    train(args, server.target, placed, name=f"{kind} {index}")


def train(args: argparse.Namespace, target: str, placed: object, name: str) -> None:
    """Until all together have made so many steps."""
    random = np.random.default_rng(1)
    with tf.Graph().as_default(), tf.device(placed):
        x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32, [None])
        slope, offset = tf.get_variable("slope", []), tf.get_variable("offset", [])
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(slope * x + offset - y))
        descend = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
        is_chief = name.startswith(("master", "chief"))
        hooks = [tf.train.StopAtStepHook(last_step=args.training_steps)]
        with tf.train.MonitoredTrainingSession(
            target,
            is_chief=is_chief,
            hooks=hooks,
            checkpoint_dir=args.job_dir or None,
            save_checkpoint_secs=2,
            log_step_count_steps=None,
        ) as session:
            seen = 0.0
            while not session.should_stop():
                values = random.uniform(-1, 1, args.batch_size)
                seen, _ = session.run([loss, descend], {x: values, y: 2 * values + 1})
    print(f"{name} has ended: loss {seen:.3f}", flush=True)


if __name__ == "__main__":
    main()
