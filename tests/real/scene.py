"""A real control plane with our kinds, hollow nodes and operators as processes, and what its audit log tells."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

import yaml

from tarragon.base.clock import SystemClock
from tarragon.client.errors import AlreadyExists, NotFound, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.informer.informer import Informer
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, Pod
from tarragon.kube.meta import CustomObject, Key, Resource
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tests.cli import forkserver
from tests.conftest import ROOT
from tools.controlplane import ControlPlane

Json = dict[str, Any]
TFJOBS = TENSORFLOW.resource
PATIENCE = 90.0


def connect(path: Path) -> HttpClient:
    return HttpClient(load_kubeconfig({}, path=path).rest_config, random.Random(1))


async def until_served(http: HttpClient, resource: Resource[Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await http.list(resource)
            except NotFound:
                await SystemClock().sleep(0.1)
            else:
                return


class OperatorProcess:
    """`tarragon operator` as a user starts it. Its log goes to a file beside the control plane's."""

    def __init__(self, process: forkserver.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def is_going(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self._process.wait, PATIENCE)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


def start_in(package: Path, command: Sequence[str], out: IO[bytes]) -> forkserver.Process:
    """What is imported from another folder than ours is not there to be forked."""
    if package == ROOT:
        with Path(os.devnull).open("rb") as nothing:
            return forkserver.start(command, ROOT, os.environ, [nothing, out, out])
    return subprocess.Popen(command, stdout=out, stderr=out, cwd=package)


class Scene:
    """The namespace is `default`. `jobs` and `pods` are live."""

    def __init__(self, plane: ControlPlane, http: HttpClient) -> None:
        self.plane = plane
        self.http = http
        self.clock = SystemClock()
        self.jobs: Informer[CustomObject] = Informer(http, TFJOBS, self.clock, jitter=random.Random(1))
        self.pods: Informer[Pod] = Informer(http, PODS, self.clock, jitter=random.Random(1))
        self.operators: list[OperatorProcess] = []
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        for cache in (self.jobs, self.pods):
            cache.add_event_handler(lambda *_: self._changed.set())

    async def begin(self, nodes: int) -> None:
        await self.install()
        for cache in (self.jobs, self.pods):
            self._tasks.append(asyncio.create_task(cache.run()))
        await self.hollow(nodes)

    async def install(self) -> None:
        with suppress(AlreadyExists):
            await self.http.create(CUSTOM_RESOURCE_DEFINITIONS, TENSORFLOW.crd())
        await until_served(self.http, TFJOBS)

    async def hollow(self, nodes: int) -> None:
        """That many nodes of 64 CPUs."""
        settings = HollowSettings(names=[f"hollow-{number}" for number in range(nodes)])
        self._tasks.append(asyncio.create_task(HollowKubelet(self.http, settings, self.clock).run()))
        async with asyncio.timeout(PATIENCE):
            while sum(node.is_ready for node in (await self.http.list(NODES)).items) < nodes:
                await self.clock.sleep(0.1)

    async def operator(self, config: Path | None = None, *flags: str, package: Path = ROOT) -> OperatorProcess:
        """One more, imported from that folder. It may be leading, or standing by, when this returns; or neither yet."""
        number = len(self.operators)
        log = self.plane.folder / f"operator-{number}.log"
        command = [sys.executable, "-m", "tarragon", "operator", "--kubeconfig", str(config or self.plane.kubeconfig)]
        command += ["--listen", "127.0.0.1:0", "--log-format", "text", *flags]
        with log.open("wb") as out:
            process = start_in(package, command, out)
        self.operators.append(OperatorProcess(process, log))
        return self.operators[-1]

    async def submit(self, names: Iterable[str], manifest: Callable[[str], Json]) -> None:
        await asyncio.gather(*(self._create(manifest(name)) for name in names))

    async def _create(self, job: Json) -> None:
        """As a user does whose request met a server that was just ending: once more."""
        try:
            await self.http.create(TFJOBS, job)
        except Unavailable:
            with suppress(AlreadyExists):
                await self.http.create(TFJOBS, job)

    async def until(self, claim: Callable[[], bool], *, patience: float = PATIENCE) -> None:
        """Of what the caches show. Fails with what there is."""
        try:
            async with asyncio.timeout(patience):
                while not claim():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(self.told()) from None

    async def until_states(self, names: Iterable[str], state: str, *, patience: float = PATIENCE) -> None:
        wanted = list(names)
        await self.until(lambda: all(self.state(name) == state for name in wanted), patience=patience)

    def state(self, name: str) -> str:
        job = self.jobs.objects.get(Key("default", name))
        return "" if job is None else decode_status(job.status).phase.value

    def told(self) -> str:
        """What a person wants to see when a test fails."""
        states = Counter(self.state(key.name) for key in self.jobs.objects)
        logs = "\n".join(f"--- operator {number}\n{one.log[-3000:]}" for number, one in enumerate(self.operators))
        return f"states {dict(states)}, {len(self.pods.objects)} pods\n{logs}"

    def uids(self) -> Mapping[str, str]:
        """Of the pods, by name."""
        return {key.name: pod.metadata.uid for key, pod in self.pods.objects.items()}

    def made(self) -> Counter[str]:
        """How often a pod of each name was made, by the audit log."""
        return Counter(
            event["objectRef"]["name"]
            for event in self.plane.audit_events()
            if event["verb"] == "create"
            and event["objectRef"]["resource"] == "pods"
            and "subresource" not in event["objectRef"]
            and event["responseStatus"]["code"] == 201
        )

    async def close(self) -> None:
        for operator in self.operators:
            operator.send(signal.SIGKILL)
            await operator.ended()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def a_scene(plane: ControlPlane, *, nodes: int = 4) -> AsyncIterator[Scene]:
    async with connect(plane.kubeconfig) as http:
        scene = Scene(plane, http)
        try:
            await scene.begin(nodes)
            yield scene
        finally:
            await scene.close()


def tfjob(name: str, *, ps: int = 1, workers: int = 2, seconds: float | None = None, policy: str = "Never") -> Json:
    """Its containers run that long in a hollow node; for ever by default, in which case the job is ended by a test."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "tfReplicaSpecs": {
                "PS": _group(ps, policy, None),
                "Worker": _group(workers, policy, seconds),
            }
        },
    }


def _group(replicas: int, policy: str, seconds: float | None) -> Json:
    annotations = {} if seconds is None else {"tarragon.dev/hollow-seconds": str(seconds)}
    container = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    return {"replicas": replicas, "restartPolicy": policy, "template": template}


def document(manifest: Json) -> str:
    return yaml.safe_dump(manifest, sort_keys=False)
