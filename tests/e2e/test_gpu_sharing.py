"""Several trainings on one GPU: DRAGON's manifest for KubeShare on two nodes with two pretended GPUs each.

Nobody is asked who has what: the processes themselves say on which GPU of which node they see themselves, and how much
of it their manifest asks for.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kills import kill
from tests.e2e.user import User, eventually
from tests.e2e.watcher import living_server

pytestmark = [pytest.mark.timeout(500)]

Json = dict[str, Any]
SEED = Path(__file__).parents[1] / "data" / "manifests" / "002-dragon-kubeshare.yaml"
NODES = (
    "name=a,cpu=4,memory=2Gi,nvidia.com/gpu=2,gpu-memory=16Gi name=b,cpu=4,memory=2Gi,nvidia.com/gpu=2,gpu-memory=16Gi"
)
SMALL = {"limits": {"cpu": "100m", "memory": "32Mi"}}
RUNS = ["bash", "-c", "exec sleep 1000"]
NODE: Json = {"name": "GPU_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
GPU = tuple[str, str]
"""A node, and the device as its pods see it."""


def sharing_job(name: str, *, least: int = 1, workers: int = 4, part: str = "0.5") -> Json:
    """The manifest with small resources, and programs that wait instead of those from a server of long ago."""
    job: Json = yaml.safe_load(SEED.read_text())
    job["metadata"]["name"] = name
    job["spec"]["min-instances"], job["spec"]["max-instances"] = least, workers
    for kind, group in job["spec"]["tfReplicaSpecs"].items():
        (container,) = group["template"]["spec"]["containers"]
        env: list[Json] = [NODE, {"name": "GPU_PART", "value": part}] if kind == "Worker" else []
        container.update(command=RUNS, resources=SMALL, env=env)
    workers_of = job["spec"]["tfReplicaSpecs"]["Worker"]
    workers_of["replicas"] = workers
    workers_of["template"]["metadata"]["annotations"]["kubeshare/gpu_request"] = part
    return job


def whole_gpu_job(name: str, workers: int) -> Json:
    container: Json = {"name": "tensorflow", "image": "busybox", "command": RUNS}
    container["env"] = [NODE, {"name": "GPU_PART", "value": "1"}]
    container["resources"] = {"limits": {**SMALL["limits"], "nvidia.com/gpu": 1}}
    template = {"spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
    spec = {"cleanPodPolicy": "All", "tfReplicaSpecs": {"Worker": {"replicas": workers, "template": template}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def holders(user: User) -> Mapping[GPU, Mapping[str, float]]:
    """The parts of each GPU by pod, as the processes see them."""
    found: dict[GPU, dict[str, float]] = defaultdict(dict)
    home = str(user.home).encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile, or is somebody else's
            continue
        if not command.startswith(b"sleep") or home not in environment:
            continue
        variables = dict(line.split("=", 1) for line in environment.decode().split("\0") if "=" in line)
        if "GPU_PART" in variables:
            gpu = variables["GPU_NODE"], variables["CUDA_VISIBLE_DEVICES"]
            found[gpu][variables["HOSTNAME"]] = float(variables["GPU_PART"])
    return found


@dataclass
class Inspector:
    """Looks at the processes all the time, and writes down each GPU of which more than all was given away."""

    user: User
    faults: list[str] = field(default_factory=list)
    looks: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        while not self._ends.wait(0.02):
            self.looks += 1
            for gpu, parts in holders(self.user).items():
                if sum(parts.values()) > 1 + 1e-9 or gpu[1] in {"", "-1"} or "," in gpu[1]:
                    self.faults.append(f"{gpu}: {parts}")

    @contextmanager
    def looking(self) -> Iterator[None]:
        thread = threading.Thread(target=self.look)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()


def submit(user: User, job: Json) -> None:
    name = job["metadata"]["name"]
    submitted = user("submit", user.file(f"{name}.yaml", yaml.safe_dump(job)))
    assert submitted.code == 0, submitted.err


def states(user: User) -> Mapping[str, str]:
    listed = user("list")
    return {words[0]: words[1] for words in map(str.split, listed.out.splitlines()[1:])}


@pytest.fixture
def cluster(user: User) -> User:
    return replace(user, variables={"TARRAGON_UP_NODE": NODES})


def test_four_halves_share_two_gpus_and_further_jobs_wait_in_words(cluster: User) -> None:
    submit(cluster, sharing_job("job1", least=4))
    eventually(lambda: sum(len(parts) for parts in holders(cluster).values()) == 4)
    assert [len(parts) for parts in holders(cluster).values()] == [2, 2]
    assert len({node for node, _ in holders(cluster)}) == 1, "all on the node of the parameter server"

    submit(cluster, sharing_job("job2", least=4))
    eventually(lambda: states(cluster).get("job2") == "Running")
    submit(cluster, sharing_job("job5", least=4))
    submit(cluster, whole_gpu_job("job6", 1))
    eventually(lambda: [states(cluster).get(name) for name in ("job5", "job6")] == ["Waiting"] * 2)
    assert "no GPU has 0.5 left" in cluster("why", "job5").out
    described = cluster("describe", "job1").out
    assert "0.5 of vGPU 0" in described
    assert "0.5 of vGPU 1" in described


def test_a_share_alone_runs_as_a_sharepod_beside_a_job(cluster: User) -> None:
    submit(cluster, sharing_job("job1", least=1, workers=1))
    pod: Json = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": "alone", "annotations": {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "command": RUNS,
                    "env": [NODE, {"name": "GPU_PART", "value": "0.5"}],
                }
            ],
        },
    }
    submit(cluster, pod)
    eventually(lambda: {"alone", "job1-worker-0"} <= {pod for parts in holders(cluster).values() for pod in parts})

    assert len(holders(cluster)) == 1, "both have half of the same GPU"


@pytest.mark.slow
def test_killed_twenty_times_no_gpu_is_oversold_and_none_is_lost(cluster: User) -> None:
    dice = random.Random(20)
    inspector = Inspector(cluster)
    with inspector.looking():
        for number in range(3):
            submit(cluster, sharing_job(f"job{number}"))
        eventually(lambda: len(holders(cluster)) == 4)
        for number in range(20):
            match dice.choice(["cluster", "cluster", "program", "job"]):
                case "cluster":
                    if server := living_server(cluster.home):
                        kill(server.pid)
                case "program":
                    pids = sorted(pid for pid, command in cluster.processes().items() if command.startswith("sleep"))
                    for pid in dice.sample(pids, min(2, len(pids))):
                        kill(pid)
                case _:
                    cluster("delete", f"job{number % 3}")
                    part = dice.choice(["0.25", "0.5", "0.7"])
                    submit(cluster, sharing_job(f"job{number % 3}", workers=dice.randint(1, 4), part=part))
            time.sleep(dice.uniform(0, 1.5))  # noqa: TID251 - the next kill is to come at any moment
            submitted = cluster("submit", "job0.yaml")  # unchanged; a cluster that was killed is started
            assert submitted.code == 0, submitted.err
        eventually(lambda: set(states(cluster).values()) == {"Running"})
        for number in range(3):
            cluster("delete", f"job{number}")
        submit(cluster, whole_gpu_job("all", 4))
        eventually(lambda: len(holders(cluster)) == 4, 60)

    assert inspector.looks > 100
    assert not inspector.faults
