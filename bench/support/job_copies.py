"""Thousands of running jobs in a minute: copies of one job that the operator created, with its pods and services.

Jobs and pods are copied in etcd, with their status: a copy has the same bytes with other names, uids and nodes of the
same length, so it works with any encoding. The API server delivers it as if another API server had written it. Services
are created through the API, because kube-apiserver 1.20 was seen to deliver only the first few hundred from etcd.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from bench.support.control_plane import (
    NODE_COUNT,
    TFJOBS,
    BenchCluster,
    OperatorProcess,
    each,
    heartbeat,
    job,
    node_name,
    until,
)
from tarragon.client.port import Selector
from tarragon.kube.codec import encode
from tarragon.kube.core import PODS, SERVICES
from tarragon.kube.meta import Key

_AT_ONCE = 16
_TOGETHER = 200
_PREFIXES = ("/registry/pods", "/registry/kubeflow.org/tfjobs")


@dataclass(frozen=True, slots=True)
class Template:
    """A running job as stored in etcd. Its name is `job-00000`, and the names of its nodes end in three digits."""

    namespace: str
    uids: Sequence[str]
    nodes: Sequence[str]
    stored: Sequence[tuple[str, bytes]]
    services: Sequence[bytes]

    def copy_of_services(self, number: int) -> list[dict[str, Any]]:
        return [msgspec.json.decode(moved(body, self._changes(number))) for body in self.services]

    def copy(self, number: int) -> list[tuple[str, bytes]]:
        """The key and value of each object of the copy with that number."""
        changes = self._changes(number)
        return [(moved(key.encode(), changes).decode(), moved(value, changes)) for key, value in self.stored]

    def _changes(self, number: int) -> list[tuple[str, str]]:
        changes = [(name(0), name(number))]
        changes += [(uid, f"{number:08x}{uid[8:]}") for uid in self.uids]
        return changes + [(node, node_name((number + place) % NODE_COUNT)) for place, node in enumerate(self.nodes)]


def moved(value: bytes, changes: Sequence[tuple[str, str]]) -> bytes:
    """Make all replacements at once, so that one replacement never changes the result of another."""
    placeholders = [bytes([0xFF, place]).ljust(len(old), b"\xff") for place, (old, _) in enumerate(changes)]
    for placeholder, (old, _) in zip(placeholders, changes, strict=True):
        value = value.replace(old.encode(), placeholder)
    for placeholder, (_, new) in zip(placeholders, changes, strict=True):
        value = value.replace(placeholder, new.encode())
    return value


def name(number: int) -> str:
    return f"job-{number:05}"


async def a_template(plane: BenchCluster, operator: OperatorProcess, namespace: str, workers: int) -> Template:
    """Let the operator create a job, mark its pods as running, and read all its objects."""
    await plane.client.create(TFJOBS, job(namespace, name(0), workers))
    selection = Selector(namespace)

    async def made() -> bool:
        return len((await plane.client.list(PODS, selection)).items) == workers + 1

    await until(made, "the first job's pods are made")
    pods = (await plane.client.list(PODS, selection)).items
    await each(pods, lambda pod: runs(plane, pod.metadata.key), 8)

    async def is_running() -> bool:
        found = await plane.client.get(TFJOBS, Key(namespace, name(0)))
        return bool(found.status["tarragon"]["state"] == "Running")

    await until(is_running, "the first job runs")
    await operator.idle()
    owner = await plane.client.get(TFJOBS, Key(namespace, name(0)))
    services = (await plane.client.list(SERVICES.with_model(dict), selection)).items
    uids = [owner.metadata.uid, *(pod.metadata.uid for pod in pods)]
    nodes = sorted({pod.spec.node_name for pod in pods})
    stored: list[tuple[str, bytes]] = []
    async with aiohttp.ClientSession() as session:
        for prefix in _PREFIXES:
            stored += await _read(plane, session, f"{prefix}/{namespace}/")
    return Template(namespace, uids, nodes, stored, [encode(as_new(service)) for service in services])


def as_new(service: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "namespace", "labels", "ownerReferences")
    metadata = {field: value for field, value in service["metadata"].items() if field in kept}
    return {"metadata": metadata, "spec": service["spec"]}


async def runs(plane: BenchCluster, pod: Key) -> None:
    """Mark a pod as running, as a kubelet does."""
    moment = heartbeat()["lastTransitionTime"]
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    status = {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": moment} for kind in kinds],
        "hostIP": "10.0.0.1",
        "podIP": "10.244.0.17",
        "podIPs": [{"ip": "10.244.0.17"}],
        "startTime": moment,
        "containerStatuses": [container_status({"running": {"startedAt": moment}}, is_ready=True)],
    }
    await plane.client.patch(PODS, pod, {"status": status}, subresource="status")


async def succeeds(plane: BenchCluster, pod: Key) -> None:
    moment = heartbeat()["lastTransitionTime"]
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}
    status = {"phase": "Succeeded", "containerStatuses": [container_status({"terminated": ended}, is_ready=False)]}
    await plane.client.patch(PODS, pod, {"status": status}, subresource="status")


def container_status(state: dict[str, Any], *, is_ready: bool) -> dict[str, Any]:
    return {
        "name": "tensorflow",
        "image": "tensorflow/tensorflow:2.21.0",
        "imageID": "docker-pullable://tensorflow/tensorflow@sha256:" + "0" * 64,
        "containerID": "containerd://" + "0" * 64,
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
    }


async def copy(plane: BenchCluster, template: Template, numbers: range) -> None:
    """Write the copies with these numbers. A job is written after its pods and services, so that none is missing."""
    async with aiohttp.ClientSession() as session:

        async def owned(number: int) -> None:
            for body in template.copy_of_services(number):
                await plane.client.create(SERVICES, body)
            for key, value in template.copy(number)[:-1]:
                await put(key, value)

        async def owner(number: int) -> None:
            await put(*template.copy(number)[-1])

        async def put(key: str, value: bytes) -> None:
            await _request(plane, session, "put", {"key": coded(key.encode()), "value": coded(value)})

        for start in range(0, len(numbers), _TOGETHER):
            await each(numbers[start : start + _TOGETHER], owned, _AT_ONCE)
            await each(numbers[start : start + _TOGETHER], owner, _AT_ONCE)


async def _read(plane: BenchCluster, session: aiohttp.ClientSession, prefix: str) -> list[tuple[str, bytes]]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    found = await _request(plane, session, "range", {"key": coded(prefix.encode()), "range_end": coded(end.encode())})
    return [(base64.b64decode(kv["key"]).decode(), base64.b64decode(kv["value"])) for kv in found.get("kvs", [])]


async def _request(
    plane: BenchCluster, session: aiohttp.ClientSession, what: str, body: dict[str, Any]
) -> dict[str, Any]:
    async with session.post(f"{plane.control_plane.etcd_url}/v3/kv/{what}", json=body) as answer:
        found: dict[str, Any] = await answer.json()
        if answer.status != 200:
            raise RuntimeError(f"etcd: {found}")
        return found


def coded(value: bytes) -> str:
    return base64.b64encode(value).decode()
