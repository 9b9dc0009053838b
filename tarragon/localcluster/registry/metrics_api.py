"""metrics.k8s.io: the current resource usage of pods and nodes, measured on request, for `kubectl top`.

A node's usage is the sum of its pods': this machine may run several nodes, and its other processes belong to none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode, format_time
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, ListOptions, RequestTarget
from tarragon.localcluster.kubelet.resources.sampler import ContainerUsage, UsageSample
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.computed import ComputedKind

GROUP = "metrics.k8s.io"

Measure = Callable[[], Awaitable[UsageSample]]
"""Takes a sample; its usage is keyed by `UID/CONTAINER`."""


def usage_key(uid: str, container: str) -> str:
    return f"{uid}/{container}"


class PodMetrics(ComputedKind):
    """Serves the metrics of pods with running containers."""

    def __init__(self, api: Api, measure: Measure) -> None:
        self._api = api
        self._measure = measure

    async def get(self, target: RequestTarget) -> Json:
        pods = self._pods(target, ListOptions(fields=f"metadata.name={target.name}"))
        found = _pod_metrics_list(target, pods, await self._measure())
        if not found:
            raise _not_found("pod", f"{target.namespace}/{target.name}")
        return found[0]

    async def list(self, target: RequestTarget, options: ListOptions) -> Sequence[Json]:
        return _pod_metrics_list(target, self._pods(target, options), await self._measure())

    def _pods(self, target: RequestTarget, options: ListOptions) -> Sequence[Json]:
        return _listed(self._api, "pods", replace(target, name=""), options)


class NodeMetrics(ComputedKind):
    """Serves the metrics of every node."""

    def __init__(self, api: Api, measure: Measure) -> None:
        self._api = api
        self._measure = measure

    async def get(self, target: RequestTarget) -> Json:
        found = await self.list(target, ListOptions(fields=f"metadata.name={target.name}"))
        if not found:
            raise _not_found("node", target.name)
        return found[0]

    async def list(self, target: RequestTarget, options: ListOptions) -> Sequence[Json]:
        nodes = _listed(self._api, "nodes", replace(target, name=""), options)
        pods = _listed(self._api, "pods", RequestTarget(target.served), ListOptions())
        sample = await self._measure()
        return [_node_metrics(target, node, pods, sample) for node in nodes]


def _listed(api: Api, plural: str, target: RequestTarget, options: ListOptions) -> Sequence[Json]:
    """All selected objects, without pagination."""
    stored = api.target(("", "v1", plural), target.namespace)
    whole = replace(options, limit=0, continue_token="", resource_version="", resource_version_match="")
    return [decode(item, dict) for item in api.list(stored, whole).items]


def _pod_metrics_list(target: RequestTarget, pods: Iterable[Json], sample: UsageSample) -> Sequence[Json]:
    measured = ((pod, _container_usage(pod, sample)) for pod in pods)
    return [_pod_metrics(target, pod, used, sample) for pod, used in measured if used]


def _container_usage(pod: Mapping[str, Any], sample: UsageSample) -> dict[str, ContainerUsage]:
    uid, spec = pod["metadata"]["uid"], pod["spec"]
    names = [each["name"] for each in (*(spec.get("initContainers") or ()), *spec["containers"])]
    return {name: sample.usage[usage_key(uid, name)] for name in names if usage_key(uid, name) in sample.usage}


def _pod_metrics(
    target: RequestTarget, pod: Mapping[str, Any], used: Mapping[str, ContainerUsage], sample: UsageSample
) -> Json:
    containers = [{"name": name, "usage": _quantities([usage])} for name, usage in used.items()]
    return {**_common_fields(target, pod, used.values(), sample), "containers": containers}


def _node_metrics(target: RequestTarget, node: Mapping[str, Any], pods: Iterable[Json], sample: UsageSample) -> Json:
    name = node["metadata"]["name"]
    on_node = (pod for pod in pods if pod["spec"].get("nodeName") == name)
    used = [usage for pod in on_node for usage in _container_usage(pod, sample).values()]
    return {**_common_fields(target, node, used, sample), "usage": _quantities(used)}


def _common_fields(
    target: RequestTarget, of: Mapping[str, Any], used: Iterable[ContainerUsage], sample: UsageSample
) -> Json:
    metadata = {field: of["metadata"][field] for field in ("name", "namespace", "labels") if field in of["metadata"]}
    return {
        "kind": target.served.kind,
        "apiVersion": target.served.api_version,
        "metadata": {**metadata, "creationTimestamp": format_time(sample.time)},
        "timestamp": format_time(sample.time),
        "window": f"{max((usage.window for usage in used), default=0.0):.3f}s",
    }


def _quantities(used: Iterable[ContainerUsage]) -> Json:
    usages = list(used)
    nano, kibi = sum(usage.cpu for usage in usages) * 10**9, sum(usage.memory for usage in usages) // 1024
    return {"cpu": f"{nano:.0f}n", "memory": f"{kibi}Ki"}


def _not_found(kind: str, name: str) -> ApiError:
    return errors.failure(404, "NotFound", f'{kind}metrics.{GROUP} "{name}" not found')
