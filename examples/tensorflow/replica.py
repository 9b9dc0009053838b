"""What a replica has to know of its job: who the others are, whether they answer, and where to write."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

# The operator writes TF_CONFIG. Take every address from it, also your own: names and ports differ between a cluster
# and a laptop. A job with a single replica has none.
TF_CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
CLUSTER = TF_CONFIG.get("cluster", {})  # {"ps": ["host:port"], "worker": ["host:port", "host:port"]}
TYPE = TF_CONFIG.get("task", {}).get("type", "worker")
INDEX = int(TF_CONFIG.get("task", {}).get("index", 0))
NAME = f"{TYPE}-{INDEX}"


def end_at_once(*_: object) -> None:
    os._exit(128 + signal.SIGTERM)


# What SIGTERM does until a script has something to save. Without a handler the first process of a container, which is
# what a script is on a cluster, would not even notice the signal.
signal.signal(signal.SIGTERM, end_at_once)


def names(*types: str) -> list[str]:
    """All replicas of these types but this one, as ["ps-0", "worker-1"]."""
    everyone = [f"{kind}-{index}" for kind in types for index in range(len(CLUSTER.get(kind, [])))]
    return [name for name in everyone if name != NAME]


def silence_of(name: str) -> str:
    """Why a replica does not answer; an empty text if it does."""
    kind, index = name.rsplit("-", 1)
    host, port = CLUSTER[kind][int(index)].rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError as error:
        return f"{name} ({host}:{port}: {error.strerror or error})"
    return ""


def wait_for(others: list[str]) -> None:
    """Return when all of these replicas answer; until then, say who does not.

    TensorFlow would wait as well, but without a word, and deaf to SIGTERM.
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
    """Wait as above where everybody waits for everybody: our port answers until TensorFlow takes it over."""
    port = int(CLUSTER[TYPE][INDEX].rsplit(":", 1)[1])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", port), family=family, dualstack_ipv6=both):
        wait_for(others)


def serve_until_ended(leader: str) -> None:
    """Keep a replica alive whose TensorFlow server works in the background.

    Not Server.join(): that never comes back to Python, so SIGTERM would have to wait for ever.
    """
    print(f"{NAME} serves at {CLUSTER[TYPE][INDEX]} until it is ended")
    answered: bool | None = None
    while True:
        silence = silence_of(leader)
        if answered != (silence == ""):
            answered = silence == ""
            print(f"{leader} answers" if answered else f"waiting for {silence}")
        time.sleep(2)


def run_folder(model_dir: str) -> str:
    """The folder of this run. A restarted replica goes on with its run; a job after a finished one begins a new one."""
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
