"""kill -9 at random moments: the job goes on, its status stays honest, nothing is lost, doubled or left over."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.tensorflow.crd import TFJOBS
from tarragon.frameworks.tensorflow.framework import MLKUBE, TENSORFLOW
from tarragon.kube.meta import CustomObject, Resource
from tests.cli.conftest import RunningCommand
from tests.cli.manifests import command, group
from tests.e2e.kills import Scene, pause, until
from tests.e2e.user import EXAMPLES, User
from tests.e2e.watcher import living_server, watcher_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# $$$$: the kubelet reads $(VAR), and makes one $ of two. What is killed has written down its own pid.
COUNTED = "echo $$$$ >> {folder}/$TYPE; echo started; while [ ! -e {folder}/go ]; do sleep 0.1; done"
PROGRAMS = Path(__file__).parents[1] / "data" / "programs"
DICE = random.Random()
LOG = logging.getLogger(__name__)


def nothing() -> None:
    """What happens besides."""


def counted_job(folder: Path) -> str:
    """Two workers and a parameter server that write down each of their starts, and end when the file `go` is there."""

    def replica(word: str, count: int, policy: str, script: str) -> Mapping[str, Any]:
        container = command("bash", "-c", script.format(folder=folder).replace("$TYPE", word))
        return {**group(container, replicas=count), "restartPolicy": policy}

    spec = {
        "runPolicy": {"backoffLimit": 50, "cleanPodPolicy": "Running"},
        "tfReplicaSpecs": {
            "PS": replica("ps-0", 1, "OnFailure", COUNTED + "; sleep 1000"),
            "Worker": replica("$HOSTNAME", 2, "ExitCode", COUNTED),
        },
    }
    return json.dumps({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "counted"}, "spec": spec})


class Counted:
    """The starts that the programs themselves have written down."""

    def __init__(self, folder: Path, scene: Scene) -> None:
        self.folder = folder
        self.scene = scene

    def starts(self, replica: str) -> list[int]:
        path = self.folder / (replica if replica == "ps-0" else f"counted-{replica}")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def run_and_are_counted(self) -> bool:
        running = self.scene.running()
        mains = {replica: state.main.pid for replica, state in running.items() if state.main}
        return len(mains) == 3 and all(self.starts(replica)[-1:] == [pid] for replica, pid in mains.items())

    async def settled(self) -> bool:
        return await self.scene.answers() and self.run_and_are_counted()


@asynccontextmanager
async def a_scene(
    user: User, job: str, manifest: str, *options: str, kind: Resource[CustomObject] = TFJOBS
) -> AsyncIterator[tuple[Scene, RunningCommand]]:
    """`tarragon run` of the manifest has begun, and a watcher with it."""
    going = user.start("run", manifest, *options)
    await until(lambda: living_server(user.home) is not None)
    async with watcher_of(user.home).watching() as watcher:
        yield Scene(home=user.home, job=job, watcher=watcher, kind=kind), going


async def test_killed_programs_shims_and_clusters_are_counted_once_each(user: User) -> None:
    manifest = user.file("job.json", counted_job(user.folder))
    killed: Counter[str] = Counter()
    async with a_scene(user, "counted", manifest) as (scene, going):
        counted = Counted(user.folder, scene)
        await until(counted.settled)

        async def deed(replica: str, do: Callable[[str], None], then: Callable[[], None]) -> None:
            await pause(DICE.uniform(0, 0.5))
            do(replica)
            killed[replica] += 1
            await pause(DICE.uniform(0, 0.3))
            then()
            await until(lambda: len(counted.starts(replica)) > killed[replica])
            await until(counted.settled)

        await deed("worker-1", scene.kill_program, nothing)
        await deed("worker-0", scene.kill_shim, scene.kill_cluster)
        await deed("ps-0", scene.kill_program, nothing)
        await deed("worker-1", scene.kill_program, scene.kill_cluster)
        user.file("go", "")
        ended = await asyncio.to_thread(going.ended)
        said = scene.balanced(await scene.status())

    assert ended.code == 0, ended.out + ended.err
    assert "Succeeded  counted" in ended.out
    assert len(re.findall("The local cluster ended unexpectedly and was restarted", ended.err)) == 2
    assert {replica: record.total for replica, record in said.items()} == {"ps-0": 1, "worker-0": 1, "worker-1": 2}
    assert {replica: len(counted.starts(replica)) - 1 for replica in said} == dict(killed)


async def killed_at_random(scene: Scene, going: RunningCommand, most: int) -> Counter[str]:
    """At most so many kills, of whatever runs, until the job has ended."""
    killed: Counter[str] = Counter()
    while going.is_going and killed.total() < most:
        await pause(DICE.uniform(0.5, 8))
        replicas = sorted(scene.running())
        if not replicas or DICE.random() < 0.25:
            scene.kill_cluster()
            killed["cluster"] += 1
            continue
        replica = DICE.choice(replicas)
        if DICE.random() < 0.6:
            scene.kill_program(replica)
            killed[f"{replica.partition('-')[0]} program"] += 1
        else:
            scene.kill_shim(replica)
            killed["shim"] += 1
    return killed


@pytest.mark.soak
@pytest.mark.tensorflow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("name", "steps", "longer"), [("ps", 4000, 16000), ("ps-tf1", 6000, 24000)])
async def test_tensorflow_gets_over_twenty_kills(user: User, name: str, steps: int, longer: int) -> None:
    text = (EXAMPLES / f"{name}.yaml").read_text().replace(f'"{steps}"', f'"{longer}"')
    killed: Counter[str] = Counter()
    jobs = 0
    while killed.total() < 20:
        jobs += 1
        job = f"digits-{name}-{jobs}"
        manifest = user.file(f"{job}.yaml", text.replace(f"digits-{name}", job))
        began = time.monotonic()
        async with a_scene(user, job, manifest, "--set", "spec.runPolicy.backoffLimit=100") as (scene, going):
            await until(lambda: len(scene.running()) > 1)
            deaths = await killed_at_random(scene, going, 20 - killed.total())
            killed += deaths
            ended = await asyncio.to_thread(going.ended)
            assert ended.code == 0, ended.out[-5000:] + ended.err[-5000:]
            said = scene.balanced(await scene.status())
        (result,) = re.findall(rf"^Succeeded  {job} in .*accuracy (0\.\d+|1\.0+)", ended.out, re.MULTILINE)
        assert float(result) >= 0.95
        restarts = {replica: record.total for replica, record in said.items()}
        LOG.info(
            "%s: %s in %.0f s, restarts %s, accuracy %s", job, dict(deaths), time.monotonic() - began, restarts, result
        )
    LOG.info("%s: %d kills in %d jobs: %s", name, killed.total(), jobs, dict(killed))


def of_2017(version: str, name: str) -> str:
    """A master, a worker, and a standard server that holds what they have learnt; checkpoints outlive all three."""
    container = {
        "name": "tensorflow",
        "image": "your_imagename",
        "command": ["python", "-m", "trainer.task", "--training_steps=15000", "--job-dir=/models"],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": name}}
    template = {"spec": {"containers": [container], "volumes": [volume], "restartPolicy": "OnFailure"}}
    job = {
        "apiVersion": version,
        "kind": "TfJob" if version.startswith("mlkube") else "TFJob",
        "metadata": {"name": name},
        "spec": {
            "replicaSpecs": [
                {"tfReplicaType": "MASTER", "replicas": 1, "template": template},
                {"tfReplicaType": "WORKER", "replicas": 1, "template": template},
                {"tfReplicaType": "PS", "replicas": 1},
            ]
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return yaml.safe_dump_all([claim, job])


@pytest.mark.soak
@pytest.mark.tensorflow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("framework", [TENSORFLOW, MLKUBE], ids=["v1alpha1", "mlkube"])
async def test_jobs_of_2017_get_over_twenty_kills(user: User, framework: Framework) -> None:
    version = "kubeflow.org/v1alpha1" if framework is TENSORFLOW else "mlkube.io/v1beta1"
    user.home.mkdir(mode=0o700)
    (user.home / "images.yaml").write_text(yaml.safe_dump({"your_imagename": {"workdir": str(PROGRAMS)}}))
    killed: Counter[str] = Counter()
    jobs = 0
    while killed.total() < 20:
        jobs += 1
        job = f"line-{jobs}"
        manifest = user.file(f"{job}.yaml", of_2017(version, job))
        async with a_scene(user, job, manifest, kind=framework.resource) as (scene, going):
            await until(lambda: len(scene.running()) > 1)
            deaths = await killed_at_random(scene, going, 20 - killed.total())
            killed += deaths
            ended = await asyncio.to_thread(going.ended)
            assert ended.code == 0, ended.out[-5000:] + ended.err[-5000:]
            said = scene.balanced(await scene.status())
        assert f"Succeeded  {job} in " in ended.out
        assert re.search(r"master 0 has ended: loss 0\.00", ended.out), ended.out[-5000:]
        LOG.info("%s: %s, restarts %s", job, dict(deaths), {replica: record.total for replica, record in said.items()})
    LOG.info("%s: %d kills in %d jobs: %s", version, killed.total(), jobs, dict(killed))
