"""Several nodes on one machine: drained while a job trains on them, and gone between two starts of the cluster."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.e2e.user import User, eventually

pytestmark = [pytest.mark.timeout(200), pytest.mark.kubectl]

Json = dict[str, Any]
GPUS = "nvidia.com/gpu"
A = f"name=a,cpu=2,memory=2Gi,{GPUS}=2,label:{GPUS}.product=T4"
B = f"name=b,cpu=2,memory=2Gi,{GPUS}=2,label:{GPUS}.product=A100"
# Each writes down on which device it was started, and ends when somebody says so.
SCRIPT = "echo $CUDA_VISIBLE_DEVICES >> {folder}/{word}-$HOSTNAME; until [ -e {folder}/go ]; do sleep 0.1; done"


@contextmanager
def cluster_of(user: User, *nodes: str) -> Iterator[None]:
    """Pods outlive it."""
    serving = user.start("up", *(word for node in nodes for word in ("--node", node)))
    serving.until("ready")
    try:
        yield
    finally:
        serving.signal(signal.SIGTERM)
        assert serving.ended().code == 0


def kubectl(user: User, *words: str) -> str:
    flags = ("--kubeconfig", str(user.home / "kubeconfig"))
    result = subprocess.run(["kubectl", *flags, *words], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def job(user: User, *, gpus: int = 0, selector: str = "") -> str:
    """A parameter server and two workers of half a CPU each."""

    def replicas(word: str, number: int) -> Json:
        limits = {"cpu": "500m", "memory": "64Mi", **({GPUS: gpus} if gpus and word == "worker" else {})}
        script = SCRIPT.format(folder=user.folder, word=word)
        container = {"name": "tensorflow", "image": "busybox", "resources": {"limits": limits}}
        container["command"] = ["sh", "-c", script]
        spec: Json = {"terminationGracePeriodSeconds": 1, "containers": [container]}
        if selector:
            spec["nodeSelector"] = {f"{GPUS}.product": selector}
        return {"replicas": number, "restartPolicy": "Never", "template": {"spec": spec}}

    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "train"},
        "spec": {
            "runPolicy": {"backoffLimit": 0},
            "tfReplicaSpecs": {"PS": replicas("ps", 1), "Worker": replicas("worker", 2)},
        },
    }
    return user.file("train.yaml", yaml.safe_dump(manifest))


def homes(user: User) -> dict[str, str]:
    """The node of each pod that runs."""
    pods = json.loads(kubectl(user, "get", "pods", "-o", "json"))["items"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"}


def all_on(user: User, *nodes: str) -> bool:
    found = homes(user)
    return len(found) == 3 and set(found.values()) <= set(nodes)


def tarragon_of(user: User) -> Json:
    found: Json = json.loads(kubectl(user, "get", "tfjob", "train", "-o", "json"))["status"]["tarragon"]
    return found


def devices(user: User) -> Mapping[str, Sequence[str]]:
    """Of each start of each replica, one after the other, as its program has written them down."""
    return {path.name.partition("-train-")[2]: path.read_text().split() for path in user.folder.glob("*-train-*")}


def test_a_node_is_drained_while_a_job_trains_and_the_job_ends_as_if_nothing_had_been(user: User) -> None:
    with cluster_of(user, A, B):
        assert user("submit", job(user, gpus=1)).code == 0
        eventually(lambda: all_on(user, "a", "b"))
        # A pod runs a moment before its program has said a word.
        eventually(lambda: sorted(map(len, devices(user).values())) == [1, 1, 1])
        before = homes(user)
        drained = set(before.values()).pop()
        other = "b" if drained == "a" else "a"
        starts = {name.removeprefix("train-"): 1 + (node == drained) for name, node in before.items()}
        kubectl(user, "drain", drained, "--force")
        eventually(lambda: all_on(user, other))
        eventually(lambda: {name: len(each) for name, each in devices(user).items()} == starts)
        last = {name: each[-1] for name, each in devices(user).items()}
        assert sorted(last[f"worker-{index}"] for index in (0, 1)) == ["0", "1"]
        assert last["ps-0"] == "-1"
        assert "(pretended: this machine has no such device)" in kubectl(user, "describe", "pod", "train-worker-0")

        (user.folder / "go").touch()
        assert user("wait", "train").code == 0
        assert tarragon_of(user)["restarts"] == {"total": 0}


def test_pods_of_a_node_that_the_next_start_has_no_more_go_to_the_others(user: User) -> None:
    with cluster_of(user, A, B):
        assert user("submit", job(user, selector="T4")).code == 0
        eventually(lambda: all_on(user, "a"))

    with cluster_of(user, f"name=b,cpu=2,memory=2Gi,label:{GPUS}.product=T4"):
        eventually(lambda: all_on(user, "b"))
        assert kubectl(user, "get", "nodes", "-o", "name").split() == ["node/b"]
        (user.folder / "go").touch()
        assert user("wait", "train").code == 0
        assert tarragon_of(user)["restarts"] == {"total": 0}


@pytest.mark.soak  # forty seconds of waiting for the pod to go; tests/real/test_nodes.py waits for the same
def test_a_job_says_what_it_lacks_when_a_node_was_deleted_and_no_other_has_room(user: User) -> None:
    nodes = ("name=a,cpu=1,memory=2Gi", "name=b,cpu=1,memory=2Gi")
    with cluster_of(user, *nodes):
        assert user("submit", job(user)).code == 0
        eventually(lambda: all_on(user, "a", "b"))
        lost = next(name for name, node in homes(user).items() if sorted(homes(user).values()).count(node) == 1)
        node = homes(user)[lost]
        kubectl(user, "delete", "node", node)
        # Forty seconds after its node, the pod goes.
        blocked = eventually(lambda: condition(user, "Blocked"), 120)
        assert blocked["reason"] == "NodeAway"
        assert blocked["message"].endswith(f"needs another node: node {node} no longer exists")
        assert tarragon_of(user)["ready"] == "2/3"
        assert lost not in homes(user)
        user("delete", "train")


def condition(user: User, kind: str) -> Json | None:
    found = json.loads(kubectl(user, "get", "tfjob", "train", "-o", "json"))["status"]["conditions"]
    return next((each for each in found if each["type"] == kind and each["status"] == "True"), None)
