"""metrics.k8s.io: what pods and nodes use at present, for `kubectl top`. Made when somebody asks.

A node uses what its pods use: several nodes may be on this machine, and the rest of the machine is none of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode, timestamp
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, ListOptions, Target
from tarragon.localcluster.kubelet.resources.sampler import Sample, Usage
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.computed import Computed

GROUP = "metrics.k8s.io"

Measure = Callable[[], Awaitable[Sample]]
"""Its keys are `UID/CONTAINER`."""


def key_of(uid: str, container: str) -> str:
    return f"{uid}/{container}"


class PodMetrics(Computed):
    """Of the pods whose containers run."""

    def __init__(self, api: Api, measure: Measure) -> None:
        self._api = api
        self._measure = measure

    async def get(self, target: Target) -> Json:
        pods = self._pods(target, ListOptions(fields=f"metadata.name={target.name}"))
        found = _of_pods(target, pods, await self._measure())
        if not found:
            raise _not_found("pod", f"{target.namespace}/{target.name}")
        return found[0]

    async def list(self, target: Target, options: ListOptions) -> Sequence[Json]:
        return _of_pods(target, self._pods(target, options), await self._measure())

    def _pods(self, target: Target, options: ListOptions) -> Sequence[Json]:
        return _stored(self._api, "pods", replace(target, name=""), options)


class NodeMetrics(Computed):
    """Of each node that there is."""

    def __init__(self, api: Api, measure: Measure) -> None:
        self._api = api
        self._measure = measure

    async def get(self, target: Target) -> Json:
        found = await self.list(target, ListOptions(fields=f"metadata.name={target.name}"))
        if not found:
            raise _not_found("node", target.name)
        return found[0]

    async def list(self, target: Target, options: ListOptions) -> Sequence[Json]:
        nodes = _stored(self._api, "nodes", replace(target, name=""), options)
        pods = _stored(self._api, "pods", Target(target.served), ListOptions())
        sample = await self._measure()
        return [_of_node(target, node, pods, sample) for node in nodes]


def by_pod(measure: Measure) -> Callable[[], Awaitable[Mapping[str, Mapping[str, int]]]]:
    """What each pod uses, by its uid: `cpu` and `memory` in thousandths."""

    async def ask() -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for key, usage in (await measure()).usage.items():
            pod = found.setdefault(key.partition("/")[0], {"cpu": 0, "memory": 0})
            pod["cpu"] += round(usage.cpu * 1000)
            pod["memory"] += usage.memory * 1000
        return found

    return ask


def _stored(api: Api, plural: str, target: Target, options: ListOptions) -> Sequence[Json]:
    """All of them, whatever part of the list was asked for."""
    stored = api.target(("", "v1", plural), target.namespace)
    whole = replace(options, limit=0, continue_token="", resource_version="", resource_version_match="")
    return [decode(item, dict) for item in api.list(stored, whole).items]


def _of_pods(target: Target, pods: Iterable[Json], sample: Sample) -> Sequence[Json]:
    measured = ((pod, _containers(pod, sample)) for pod in pods)
    return [_of_pod(target, pod, used, sample) for pod, used in measured if used]


def _containers(pod: Mapping[str, Any], sample: Sample) -> dict[str, Usage]:
    uid, spec = pod["metadata"]["uid"], pod["spec"]
    names = [each["name"] for each in (*(spec.get("initContainers") or ()), *spec["containers"])]
    return {name: sample.usage[key_of(uid, name)] for name in names if key_of(uid, name) in sample.usage}


def _of_pod(target: Target, pod: Mapping[str, Any], used: Mapping[str, Usage], sample: Sample) -> Json:
    containers = [{"name": name, "usage": _amounts([usage])} for name, usage in used.items()]
    return {**_head(target, pod, used.values(), sample), "containers": containers}


def _of_node(target: Target, node: Mapping[str, Any], pods: Iterable[Json], sample: Sample) -> Json:
    name = node["metadata"]["name"]
    here = [used for pod in pods if pod["spec"].get("nodeName") == name for used in _containers(pod, sample).values()]
    return {**_head(target, node, here, sample), "usage": _amounts(here)}


def _head(target: Target, of: Mapping[str, Any], used: Iterable[Usage], sample: Sample) -> Json:
    metadata = {field: of["metadata"][field] for field in ("name", "namespace", "labels") if field in of["metadata"]}
    return {
        "kind": target.served.kind,
        "apiVersion": target.served.api_version,
        "metadata": {**metadata, "creationTimestamp": timestamp(sample.time)},
        "timestamp": timestamp(sample.time),
        "window": f"{max((usage.window for usage in used), default=0.0):.3f}s",
    }


def _amounts(used: Iterable[Usage]) -> Json:
    each = list(used)
    nano, kibi = sum(one.cpu for one in each) * 10**9, sum(one.memory for one in each) // 1024
    return {"cpu": f"{nano:.0f}n", "memory": f"{kibi}Ki"}


def _not_found(kind: str, name: str) -> ApiError:
    return errors.failure(404, "NotFound", f'{kind}metrics.{GROUP} "{name}" not found')
