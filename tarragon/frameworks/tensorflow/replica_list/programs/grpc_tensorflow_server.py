"""TensorFlow's standard server: it holds variables, and computes what the other replicas of its cluster ask for.

It serves until it is ended; SIGTERM ends it at once. It runs on TensorFlow 1 and 2, on Python 2.7 and 3.

    grpc_tensorflow_server.py --cluster_spec 'ps|ps-0:2222;ps-1:2222,worker|worker-0:2222' --job_name ps --task_id 0
"""

import argparse
import os
import signal
import sys
import threading


def end_at_once(number, _):
    """The first process of a container is not ended by a signal that it does not handle."""
    os._exit(128 + number)


def parse_cluster(text):
    """`ps|host:port;host:port,worker|host:port` as {"ps": [...], "worker": [...]}."""
    cluster = {}
    for group in text.split(","):
        name, bar, addresses = group.partition("|")
        hosts = addresses.split(";")
        if not (name and bar and all(":" in host for host in hosts)):
            raise argparse.ArgumentTypeError("{!r} is not TYPE|HOST:PORT;HOST:PORT".format(group))
        if name in cluster:
            raise argparse.ArgumentTypeError("{} is there twice".format(name))
        cluster[name] = hosts
    return cluster


def parse_truth(text):
    """As in `--verbose true`, which is how it has always been written."""
    if text.lower() not in {"true", "false"}:
        raise argparse.ArgumentTypeError("must be true or false, not {}".format(text))
    return text.lower() == "true"


def parse_arguments(words):
    parser = argparse.ArgumentParser(description="Serve as one task of a TensorFlow cluster until ended.")
    parser.add_argument("--cluster_spec", type=parse_cluster, required=True, help="TYPE|HOST:PORT;HOST:PORT,TYPE|...")
    parser.add_argument("--job_name", required=True, help="the type of this task, e.g. ps")
    parser.add_argument("--task_id", type=int, default=0, help="its number within the type")
    parser.add_argument("--gpu_memory_fraction", type=float, default=1.0, help="of each GPU, how much it may take")
    parser.add_argument("--verbose", type=parse_truth, nargs="?", const=True, default=False, help="tell more")
    arguments = parser.parse_args(words)
    tasks = arguments.cluster_spec.get(arguments.job_name, [])
    if not 0 <= arguments.task_id < len(tasks):
        parser.error("there is no {} {} in --cluster_spec".format(arguments.job_name, arguments.task_id))
    return arguments


def serve(arguments):
    """The server works in threads of its own."""
    if arguments.verbose:
        os.environ.setdefault("TF_CPP_MIN_VLOG_LEVEL", "1")
    import tensorflow as tf  # Only now: it reads the environment, and wrong arguments need no waiting for it.

    if hasattr(getattr(tf, "compat", None), "v1"):
        tf = tf.compat.v1
    config = tf.ConfigProto()
    config.gpu_options.per_process_gpu_memory_fraction = arguments.gpu_memory_fraction
    return tf.train.Server(
        tf.train.ClusterSpec(arguments.cluster_spec),
        job_name=arguments.job_name,
        task_index=arguments.task_id,
        config=config,
    )


def main(words):
    signal.signal(signal.SIGTERM, end_at_once)
    signal.signal(signal.SIGINT, end_at_once)
    arguments = parse_arguments(words)
    server = serve(arguments)
    print("{} {} serves at {}".format(arguments.job_name, arguments.task_id, server.target))
    sys.stdout.flush()
    # Server.join() never comes back to Python, where signals are handled: here it would hold off SIGTERM for ever.
    waiting = threading.Thread(target=server.join)
    waiting.daemon = True
    waiting.start()
    while waiting.is_alive():
        waiting.join(1)


if __name__ == "__main__":
    main(sys.argv[1:])
