"""A real control plane with Tarragon installed from deploy/, the operator as the service account that is its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tarragon.base.clock import SystemClock
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.informer.informer import Informer
from tarragon.client.port import DeleteOptions
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import EVENTS, NODES, PODS, Pod
from tarragon.kube.meta import CustomObject, Key
from tests.cli import forkserver
from tools.controlplane import ControlPlane

Json = dict[str, Any]
TFJOBS = TENSORFLOW.resource
WHOLE_EVENTS = EVENTS.with_model(dict)
WHOLE_NODES = NODES.with_model(dict)
PATIENCE = 60.0
HEARTBEAT_SECONDS = 5.0
FLAGS = ("--retry-period", "0.4", "--listen", "127.0.0.1:0")
SHORT_LEASE = ("--lease-duration", "9", "--renew-deadline", "6")
"""For tests that wait for the end of another's Lease: a machine that stands still for longer ends a leader, too."""
LONG_LEASE = ("--lease-duration", f"{2 * PATIENCE:g}", "--renew-deadline", f"{1.5 * PATIENCE:g}")
"""For tests in which no Lease may end: these wait less long for anything."""

ALL_FIELDS_SINCE = 30
"""The minor version that knows all fields of our CRDs."""


def unvalidated(plane: ControlPlane) -> tuple[str, ...]:
    """What kubectl needs to install our CRDs where the server does not know all of their fields, and ignores those."""
    return () if plane.minor >= ALL_FIELDS_SINCE else ("--validate=false",)


class Kubectl:
    """As whoever that kubeconfig is."""

    def __init__(self, config: Path) -> None:
        self.config = config

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env={"PATH": os.environ["PATH"], "HOME": str(self.config.parent), "KUBECONFIG": str(self.config)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        communication = asyncio.ensure_future(process.communicate(stdin.encode()))
        in_time, _ = await asyncio.wait({communication}, timeout=PATIENCE)
        if not in_time:
            process.kill()
        out, _ = await communication
        assert in_time, f"kubectl {' '.join(arguments)} still ran after {PATIENCE:.0f} s, and said:\n{out.decode()}"
        return process.returncode or 0, out.decode()

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it prints. It must succeed."""
        code, out = await self.run(*arguments, stdin=stdin)
        assert code == 0, f"kubectl {' '.join(arguments)} ended with {code}:\n{out}"
        return out

    async def established(self, definition: str) -> None:
        """Return when its kind is served. In the moment before it has its first condition, `kubectl wait` fails."""
        wait = ("wait", "--for=condition=Established", f"crd/{definition}", f"--timeout={PATIENCE:.0f}s")
        async with asyncio.timeout(PATIENCE):
            while (await self.run(*wait))[0]:
                continue
            while (await self.run("get", definition))[0]:  # it is found a moment after it is established
                continue


class OperatorProcess:
    def __init__(self, process: forkserver.Background, log: Path) -> None:
        self.process = process
        self.log = log
        self.is_stopped = False

    async def stop(self) -> int:
        """As Kubernetes ends it. Its exit code."""
        self.is_stopped = True
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), PATIENCE)

    @property
    def has_died(self) -> bool:
        return self.process.returncode is not None and not self.is_stopped

    @property
    def is_leading(self) -> bool:
        return '"leading"' in self.log.read_text()


class Stage:
    """The administrator's view, and a node whose pods run until a test says how they end."""

    def __init__(self, plane: ControlPlane, http: HttpClient) -> None:
        self.plane = plane
        self.http = http
        self.clock = SystemClock()
        self.kubectl = Kubectl(plane.kubeconfig)
        self.jobs: Informer[CustomObject] = Informer(http, TFJOBS, self.clock, jitter=random.Random(1))
        self.pods: Informer[Pod] = Informer(http, PODS, self.clock, jitter=random.Random(1))
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self._operators: list[OperatorProcess] = []
        self._nodes: list[str] = []
        for cache in (self.jobs, self.pods):
            cache.add_event_handler(lambda *_: self._changed.set())

    async def install(self, *arguments: str) -> str:
        """What kubectl says to that. Afterwards jobs can be made, and are followed."""
        said = await self.kubectl(*arguments, *unvalidated(self.plane))
        await self.begin()
        return said

    async def begin(self) -> None:
        await self.kubectl.established("tfjobs.kubeflow.org")
        if not self._tasks:
            works = (self.jobs.run(), self.pods.run(), self._plays(), self._heartbeats())
            self._tasks = [asyncio.create_task(work) for work in works]

    async def until_all_kinds_can_be_listed(self) -> None:
        """Wait until all kinds of jobs can be listed: then their CRDs can be deleted.

        kube-apiserver sets the storage of a kind up at the first request. If that is the deletion of its CRD, this may
        fail and be tried again only minutes later: CRDFinalizer's retry conflicts with its own write of the status.
        """
        await self.kubectl("get", ",".join(framework.resource.full_name for framework in FRAMEWORKS))

    async def node(self, name: str, cpu: str = "8") -> None:
        with contextlib.suppress(AlreadyExists):
            await self.http.create(WHOLE_NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        await self.http.patch(WHOLE_NODES, Key("", name), {"status": status}, subresource="status")
        await self._beat(name)
        self._nodes.append(name)

    async def token(self, namespace: str = "tarragon-system") -> Path:
        """A kubeconfig of the operator's own service account, as its pod would have it."""
        token = (await self.kubectl("create", "token", "tarragon", "-n", namespace)).strip()
        config: Json = yaml.safe_load(self.plane.kubeconfig.read_text())
        config["users"] = [{"name": "tarragon", "user": {"token": token}}]
        config["contexts"][0]["context"] |= {"user": "tarragon", "namespace": namespace}
        path = self.plane.folder / f"tarragon-in-{namespace}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    async def operator(self, config: Path, *flags: str) -> OperatorProcess:
        """One more, until the end of the test."""
        log = self.plane.folder / f"operator-{len(self._operators)}-{random.Random().random()}.log"
        with log.open("wb") as out:
            process = forkserver.Background(
                [sys.executable, "-m", "tarragon", "operator", "--kubeconfig", str(config), *FLAGS, *flags],
                {**os.environ, "TARRAGON_HOME": str(self.plane.folder / "home")},
                out,
            )
        self._operators.append(OperatorProcess(process, log))
        return self._operators[-1]

    async def submit(self, name: str, namespace: str = "default", **spec: Any) -> None:
        await self.http.create(TFJOBS, job(name, namespace, **spec))

    async def submit_mpi(self, name: str, version: str, **run_policy: Any) -> None:
        """Submit an MPIJob with two workers."""
        specs = {"Launcher": group(1), "Worker": group(2)}
        whole = {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": "MPIJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"mpiReplicaSpecs": specs, "runPolicy": run_policy},
        }
        await self.kubectl("create", "-f", "-", stdin=json.dumps(whole))

    async def change(self, name: str, patch: Json, namespace: str = "default") -> None:
        await self.http.patch(TFJOBS, Key(namespace, name), {"spec": patch})

    async def ends(self, pod: str, exit_code: int, namespace: str = "default") -> None:
        """As its kubelet would tell it."""
        terminated = {"exitCode": exit_code, "finishedAt": "2026-01-01T00:00:00Z"}
        await self._says(Key(namespace, pod), "Failed" if exit_code else "Succeeded", {"terminated": terminated})

    def state(self, name: str, namespace: str = "default") -> str:
        found = self.status(name, namespace)
        return "" if found is None else found.phase.value

    def status(self, name: str, namespace: str = "default") -> JobStatus | None:
        found = self.jobs.objects.get(Key(namespace, name))
        return None if found is None else decode_status(found.status)

    def runs_all(self, *names: str, namespace: str = "default") -> bool:
        """These pods, among others perhaps."""
        found = (self.pods.objects.get(Key(namespace, name)) for name in names)
        return all(pod is not None and pod.status.phase == "Running" for pod in found)

    def patience(self) -> asyncio.Timeout:
        return asyncio.timeout(PATIENCE)

    def has_pods(self, *names: str, namespace: str = "default") -> bool:
        """These, running, and no others of the namespace."""
        there = {key.name: pod for key, pod in self.pods.objects.items() if key.namespace == namespace}
        return there.keys() == set(names) and all(pod.status.phase == "Running" for pod in there.values())

    async def until(self, claim: Callable[[], bool]) -> None:
        try:
            async with self.patience():
                while not claim():
                    assert not [one for one in self._operators if one.has_died], self.diagnostics()
                    self._changed.clear()
                    # Some claims are about logs and files, which nobody watches.
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), 0.2)
        except TimeoutError:
            raise AssertionError(self.diagnostics()) from None

    async def until_state(self, name: str, state: str, namespace: str = "default") -> None:
        await self.until(lambda: self.state(name, namespace) == state)

    async def until_told(self, name: str, reason: str, *, times: int = 1) -> None:
        """By an event about the job of that name."""
        async with self.patience():
            while True:
                counts = [
                    event.get("count") or 1
                    for event in (await self.http.list(WHOLE_EVENTS)).items
                    if event["involvedObject"]["name"] == name and event["reason"] == reason
                ]
                if sum(counts) >= times:
                    return
                await self.clock.sleep(0.2)

    async def until_may(self, account: str, *what: str, answer: str = "yes") -> None:
        """What a role allows is allowed a moment after it was written, and a moment longer."""
        async with self.patience():
            while (await self.kubectl.run("auth", "can-i", *what, "--as", account))[1].split()[-1] != answer:
                await self.clock.sleep(0.1)

    def asked_by(self, user: str) -> list[Json]:
        """What the audit log has of one identity."""
        return [event for event in self.plane.audit_events() if event["user"]["username"] == user]

    def diagnostics(self) -> str:
        jobs = {str(key): json.dumps(found.status) for key, found in self.jobs.objects.items()}
        pods = {str(key): (pod.status.phase, pod.spec.node_name) for key, pod in self.pods.objects.items()}
        logs = "\n".join(f"---\n{one.log.read_text()[-4000:]}" for one in self._operators)
        return f"jobs {jobs}\npods {pods}\n{logs}"

    async def close(self) -> None:
        """Operators give back their Lease: the next test's need not wait until it is over."""
        running = [one for one in self._operators if one.process.returncode is None]
        try:
            for one in running:
                one.process.send_signal(signal.SIGCONT)  # a test that has failed may have left it frozen
            await asyncio.gather(*(one.stop() for one in running))
        finally:
            for one in running:
                if one.process.returncode is None:
                    one.process.kill()
                    await one.process.wait()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _plays(self) -> None:
        """What a kubelet does: pods of a node run, and go when they are deleted."""
        queue: asyncio.Queue[Key] = asyncio.Queue()
        self.pods.add_event_handler(lambda key, _, new: queue.put_nowait(key) if new is not None else None)
        while True:
            key = await queue.get()
            pod = self.pods.objects.get(key)
            if pod is None or pod.spec.node_name not in self._nodes:
                continue
            try:
                if pod.metadata.is_being_deleted:
                    await self.http.delete(PODS, key, DeleteOptions(grace_period_seconds=0, uid=pod.metadata.uid))
                elif pod.status.phase == "Pending":
                    await self._says(key, "Running", {"running": {}})
            except (NotFound, Conflict):
                continue
            except ApiError:  # such as a server that does not answer: a kubelet asks again
                await self.clock.sleep(0.5)
                queue.put_nowait(key)

    async def _says(self, pod: Key, phase: str, state: Json) -> None:
        name = self.pods.objects[pod].spec.containers[0].name
        container = {"name": name, "image": "i", "imageID": "", "ready": True, "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [{**container, "state": state}]}
        await self.http.patch(PODS, pod, {"status": status}, subresource="status")

    async def _heartbeats(self) -> None:
        """A node that is silent for long loses its pods."""
        while True:
            await self.clock.sleep(HEARTBEAT_SECONDS)
            for name in self._nodes:
                with contextlib.suppress(ApiError):
                    await self._beat(name)

    async def _beat(self, name: str) -> None:
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
        await self.http.patch(WHOLE_NODES, Key("", name), {"status": {"conditions": [ready]}}, subresource="status")


@asynccontextmanager
async def a_stage(plane: ControlPlane) -> AsyncIterator[Stage]:
    async with HttpClient(load_kubeconfig({}, path=plane.kubeconfig).rest_config, random.Random(1)) as http:
        stage = Stage(plane, http)
        try:
            yield stage
        finally:
            await stage.close()


def group(replicas: int, *, policy: str = "Never", cpu: str = "100m") -> Json:
    container = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}


def job(name: str, namespace: str, **spec: Any) -> Json:
    types = ("Chief", "PS", "Worker")
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "tfReplicaSpecs": {kind: spec[kind] for kind in types if kind in spec},
            **{field: value for field, value in spec.items() if field not in types},
        },
    }


def verbs_of(events: Sequence[Json]) -> set[tuple[str, str, str]]:
    """Group, resource with its subresource, and verb of each request that an audit log has."""
    found = set()
    for event in events:
        about = event.get("objectRef")
        if about is not None and "resource" in about:
            subresource = f"/{about['subresource']}" if "subresource" in about else ""
            found.add((about.get("apiGroup", ""), f"{about['resource']}{subresource}", event["verb"]))
    return found
