"""A namespace of a shared control plane, nodes whose pods run as soon as they are bound, our operator in process."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tarragon.base.clock import SystemClock
from tarragon.client.errors import AlreadyExists, ApiError, NotFound, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.config import load_kubeconfig
from tarragon.client.informer.informer import Informer
from tarragon.client.port import DEFAULT_DELETE, DeleteOptions, Selector
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.status import Condition, JobStatus
from tarragon.job.status_encoding import decode_status
from tarragon.kube.codec import format_time
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, PODS
from tarragon.kube.meta import CustomObject, Key, Resource
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.rules import SchedulingRules
from tools.controlplane import ControlPlane

Json = dict[str, Any]
TFJOBS = TENSORFLOW.resource
PATIENCE = 100.0
HEARTBEAT_SECONDS = 5.0
HOST = "kubernetes.io/hostname"
STANDARD = SchedulingRules()


class OperatorEnvironment:
    """Names are of the namespace. The nodes are labelled with it, and gone in the end."""

    def __init__(self, plane: ControlPlane, http: HttpClient, namespace: str) -> None:
        self.plane = plane
        self.http = http
        self.namespace = namespace
        self._clock = SystemClock()
        here = Selector(namespace=namespace)
        self._jobs: Informer[CustomObject] = Informer(http, TFJOBS, self._clock, here, jitter=random.Random(1))
        self._pods: Informer[Json] = Informer(http, PODS.with_model(dict), self._clock, here, jitter=random.Random(1))
        self._waiting: set[asyncio.Event] = set()
        """The events of the tasks that wait for a change. Each task clears only its own event."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._cleaning: list[tuple[Resource[Any], str]] = []
        self._nodes: list[str] = []
        self._operator: asyncio.Task[None] | None = None
        self.starts_pods = True
        for cache in (self._jobs, self._pods):
            cache.add_event_handler(lambda *_: self._wake())

    async def begin(self) -> None:
        with contextlib.suppress(AlreadyExists):
            await self.http.create(CUSTOM_RESOURCE_DEFINITIONS, TENSORFLOW.crd())
        await self.create(NAMESPACES, self.namespace)
        await self._until_served()
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(self.plane.has_service_account, self.namespace):
                await self._clock.sleep(0.05)
        for cache in (self._jobs, self._pods):
            self._tasks.append(asyncio.create_task(cache.run()))
            await cache.wait_for_sync()
        self._tasks += [asyncio.create_task(self._play_kubelet()), asyncio.create_task(self._beat())]

    def name(self, word: str) -> str:
        """Of an object that is not the namespace's own."""
        return f"{self.namespace}-{word}"

    async def node(self, word: str, **amounts: str) -> str:
        name = self.name(word)
        await self.create(NODES, name, labels={HOST: name, "test-env": self.namespace})
        status = {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110", **amounts},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "of a test"}],
        }
        status["capacity"] = status["allocatable"]
        await self.http.patch(NODES, Key("", name), {"status": status}, subresource="status")
        # A new node is tainted until the node controller has looked at it, which not every control plane has.
        await self.http.patch(NODES, Key("", name), {"spec": {"taints": None}})
        self._nodes.append(name)
        return name

    async def create(self, resource: Resource[Any], name: str, **body: Any) -> None:
        metadata: Json = {"name": name}
        for field in ("labels", "annotations"):
            if field in body:
                metadata[field] = body.pop(field)
        if resource.namespaced:
            metadata["namespace"] = self.namespace
        else:
            self._cleaning.append((resource, name))
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **body}
        await self.http.create(resource.with_model(dict), whole)

    async def patch(self, resource: Resource[Any], name: str, patch: Json, **how: Any) -> None:
        await self.http.patch(resource.with_model(dict), self._key(resource, name), patch, **how)

    async def delete(self, resource: Resource[Any], name: str, options: DeleteOptions = DEFAULT_DELETE) -> None:
        await self.http.delete(resource.with_model(dict), self._key(resource, name), options)

    async def get(self, resource: Resource[Any], name: str) -> Json:
        return await self.http.get(resource.with_model(dict), self._key(resource, name))

    async def submit(self, name: str, **spec: Any) -> None:
        await self.http.create(TFJOBS, {**job(name, **spec), "metadata": {"name": name, "namespace": self.namespace}})

    def start_operator(
        self, settings: OperatorSettings | None = None, *, config: Path | None = None, rules: SchedulingRules = STANDARD
    ) -> None:
        """Until the end of the test, or until `stop_operator`."""
        options = OperatorOptions(settings=settings or OperatorSettings(), rules=lambda: rules, seed=1)
        self._operator = asyncio.create_task(self._operate(options, config or self.plane.kubeconfig))
        self._tasks.append(self._operator)

    async def stop_operator(self) -> None:
        """The one that was started last."""
        assert self._operator is not None
        self._tasks.remove(self._operator)
        self._operator.cancel()
        await asyncio.wait([self._operator])

    async def _operate(self, options: OperatorOptions, config: Path) -> None:
        async with connect(config) as http:
            await Operator(http, self._clock, options).run()

    @property
    def pods(self) -> Mapping[str, Json]:
        return {key.name: pod for key, pod in self._pods.objects.items()}

    def status(self, name: str) -> JobStatus:
        found = self._jobs.objects.get(Key(self.namespace, name))
        return decode_status(None if found is None else found.status)

    def phase(self, name: str) -> str:
        return self.status(name).phase.value

    def condition(self, name: str, kind: str) -> Condition | None:
        return self.status(name).condition(kind)

    def waits_for(self, name: str) -> str:
        """The code, while it waits."""
        admission = self.status(name).admission
        return "" if admission is None or admission.wait is None or admission.admitted_at else admission.wait.code

    @property
    def names(self) -> Collection[str]:
        """Of the jobs that there are."""
        return [key.name for key in self._jobs.objects]

    def is_there(self, name: str) -> bool:
        return Key(self.namespace, name) in self._jobs.objects

    def made(self) -> Counter[str]:
        """How often a pod of each name was made, by the audit log."""
        return Counter(event["objectRef"]["name"] for event in self.asked("create", "pods", 201))

    async def until_asked(self, verb: str, plural: str, code: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.asked(verb, plural, code):
                await self._clock.sleep(0.1)

    def asked(self, verb: str, plural: str, code: int) -> list[Json]:
        """Requests for this namespace's objects that were answered so, by the audit log."""
        return [
            event
            for event in self.plane.audit_events()
            if event["verb"] == verb
            and event.get("objectRef", {}).get("resource") == plural
            and event["objectRef"].get("namespace") == self.namespace
            and event["objectRef"].get("subresource", "status") == "status"
            and event.get("responseStatus", {}).get("code") == code
        ]

    async def until(self, claim: Callable[[], bool]) -> None:
        """Of jobs and pods. Fails with what there is."""
        try:
            async with asyncio.timeout(PATIENCE), self._changes() as changes:
                while not claim():
                    changes.clear()
                    changed = asyncio.ensure_future(changes.wait())
                    await asyncio.wait({changed, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
                    for task in self._tasks:
                        if task.done() and not task.cancelled():
                            task.result()
        except TimeoutError:
            raise AssertionError(self._told()) from None

    @asynccontextmanager
    async def _changes(self) -> AsyncIterator[asyncio.Event]:
        """An event that every change of a job or pod sets, and nobody else clears."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield event
        finally:
            self._waiting.remove(event)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    async def until_phase(self, name: str, phase: str) -> None:
        await self.until(lambda: self.phase(name) == phase)

    async def until_there_is(self, resource: Resource[Any], name: str, claim: Callable[[Json], bool]) -> None:
        """Of any kind, by asking again and again."""
        async with asyncio.timeout(PATIENCE):
            while not claim(await self.get(resource, name)):
                await self._clock.sleep(0.1)

    async def until_gone(self, resource: Resource[Any], name: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.get(resource, name)
                except NotFound:
                    return
                await self._clock.sleep(0.1)

    async def ends(self, pod: str, exit_code: int = 0) -> None:
        state = {"terminated": {"exitCode": exit_code, "finishedAt": "2026-01-01T00:00:00Z"}}
        await self._set(pod, "Failed" if exit_code else "Succeeded", state)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pod in (await self.http.list(PODS, Selector(namespace=self.namespace))).items:
            await self._forget(pod.metadata.name)
        for resource, name in reversed(self._cleaning):
            with contextlib.suppress(ApiError):
                await self.delete(resource, name)

    async def _play_kubelet(self) -> None:
        """Pods of this namespace that have a node run at once, and end as soon as somebody deletes them."""
        async with self._changes() as changes:
            while True:
                changes.clear()
                with contextlib.suppress(Unavailable):  # a kubelet asks again
                    await self._play_pods()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):  # `wait_for` of Python 3.11 may swallow the end of this task
                        await changes.wait()

    async def _play_pods(self) -> None:
        for name, pod in self.pods.items():
            if "nodeName" not in pod["spec"]:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                await self._forget(name)
            elif pod["status"].get("phase") == "Pending" and self.starts_pods:
                await self._set(name, "Running", {"running": {}})

    async def _beat(self) -> None:
        """The node controller takes a node that is silent for long for lost."""
        while True:
            await self._clock.sleep(HEARTBEAT_SECONDS)
            for name in self._nodes:
                with contextlib.suppress(ApiError):  # it is gone, or has changed since: the next beat will do
                    node = await self.get(NODES, name)
                    now = {"lastHeartbeatTime": format_time(self._clock.now())}
                    conditions = [{**condition, **now} for condition in node["status"]["conditions"]]
                    version = {"resourceVersion": node["metadata"]["resourceVersion"]}
                    beat = {"metadata": version, "status": {"conditions": conditions}}
                    await self.patch(NODES, name, beat, subresource="status")

    async def _set(self, pod: str, phase: str, state: Json) -> None:
        containers = [
            {"name": "tensorflow", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        ]
        status = {"phase": phase, "containerStatuses": containers}
        with contextlib.suppress(NotFound):
            await self.patch(PODS, pod, {"status": status}, subresource="status")

    async def _forget(self, pod: str) -> None:
        with contextlib.suppress(NotFound):
            await self.delete(PODS, pod, DeleteOptions(grace_period_seconds=0))

    async def _until_served(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.http.list(TFJOBS)
                except NotFound:
                    await self._clock.sleep(0.1)
                else:
                    return

    def _key(self, resource: Resource[Any], name: str) -> Key:
        return Key(self.namespace if resource.namespaced else "", name)

    def _told(self) -> str:
        """What a person wants to see when a test fails."""
        jobs = {
            str(key): (status.phase.value, [f"{one.type}={one.is_true} {one.message}" for one in status.conditions])
            for key, found in self._jobs.objects.items()
            for status in [decode_status(found.status)]
        }
        pods = {
            name: (
                pod["spec"].get("nodeName"),
                pod["status"].get("phase"),
                pod["metadata"].get("deletionTimestamp"),
                [one.get("message") for one in pod["status"].get("conditions", [])],
            )
            for name, pod in self.pods.items()
        }
        return f"jobs {jobs}\npods {pods}"


def connect(config: Path) -> HttpClient:
    return HttpClient(load_kubeconfig({}, path=config).rest_config, random.Random(1))


@asynccontextmanager
async def an_environment(plane: ControlPlane, namespace: str) -> AsyncIterator[OperatorEnvironment]:
    async with connect(plane.kubeconfig) as http:
        env = OperatorEnvironment(plane, http, namespace)
        try:
            await env.begin()
            yield env
        finally:
            await env.close()


def group(replicas: int, *, policy: str = "Never", cpu: str = "1", **spec: Any) -> Json:
    container: Json = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": cpu}}, **spec.pop("c", {})}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [container], **spec}}}


def job(name: str, **spec: Any) -> Json:
    types = ("PS", "Worker")
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "tfReplicaSpecs": {kind: spec[kind] for kind in types if kind in spec},
            **{field: value for field, value in spec.items() if field not in types},
        },
    }
