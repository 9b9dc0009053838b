"""What a replica needs to know about its job: its peers, whether they answer, and the folder of the run."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

# The operator sets TF_CONFIG. Read every address from it, including your own: names and ports differ between a cluster
# and a laptop. A job with a single replica has no TF_CONFIG.
TF_CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
CLUSTER = TF_CONFIG.get("cluster", {})  # {"ps": ["host:port"], "worker": ["host:port", "host:port"]}
TYPE = TF_CONFIG.get("task", {}).get("type", "worker")
INDEX = int(TF_CONFIG.get("task", {}).get("index", 0))
NAME = f"{TYPE}-{INDEX}"


def end_at_once(*_: object) -> None:
    os._exit(128 + signal.SIGTERM)


# Handles SIGTERM until a script has something to save. Without a handler, the first process of a container, which a
# script is on a cluster, would ignore the signal.
signal.signal(signal.SIGTERM, end_at_once)


def names(*types: str) -> list[str]:
    """All other replicas of these types, as ["ps-0", "worker-1"]."""
    everyone = [f"{kind}-{index}" for kind in types for index in range(len(CLUSTER.get(kind, [])))]
    return [name for name in everyone if name != NAME]


def silence_of(name: str) -> str:
    """The reason why a replica does not answer, empty if it does."""
    kind, index = name.rsplit("-", 1)
    host, port = CLUSTER[kind][int(index)].rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError as error:
        return f"{name} ({host}:{port}: {error.strerror or error})"
    return ""


def wait_for(others: list[str]) -> None:
    """Return when all of these replicas answer; until then, print which ones do not.

    TensorFlow would wait as well, but silently and without reacting to SIGTERM.
    """
    said: list[str] = []
    again_at = 0.0
    while True:
        silent = [silence for silence in map(silence_of, others) if silence]
        if not silent:
            return
        if silent != said or time.monotonic() > again_at:
            print("waiting for", ", ".join(silent))
            said, again_at = silent, time.monotonic() + 10
        time.sleep(0.5)


def meet(others: list[str]) -> None:
    """Wait for all workers, which wait for each other: this one's port answers until TensorFlow takes it over."""
    port = int(CLUSTER[TYPE][INDEX].rsplit(":", 1)[1])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", port), family=family, dualstack_ipv6=both):
        wait_for(others)


def serve_until_ended(leader: str) -> None:
    """Keep the process alive while its TensorFlow server runs in the background.

    Server.join() never returns to Python, so SIGTERM would never be handled.
    """
    print(f"{NAME} serves at {CLUSTER[TYPE][INDEX]} until it is stopped")
    answered: bool | None = None
    while True:
        silence = silence_of(leader)
        if answered != (silence == ""):
            answered = silence == ""
            print(f"{leader} answers" if answered else f"waiting for {silence}")
        time.sleep(2)


def run_folder(model_dir: str) -> str:
    """The folder of this run. A restarted replica continues its run; a job after a finished one starts a new run."""
    number = 1
    while Path(model_dir, f"run-{number}", "done").exists():
        number += 1
    folder = Path(model_dir, f"run-{number}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"checkpoints and TensorBoard files: {folder}")
    return str(folder)


def finish(folder: str, result: str) -> None:
    """Print the result, and mark the run as done."""
    print(f"done: {result}")
    Path(folder, "done").write_text(result + "\n")
