"""Reads the resource usage of nodes and pods from metrics.k8s.io, if the cluster serves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import Resources, add_resources
from tarragon.client.errors import ApiError, Unavailable
from tarragon.client.port import Client, Selector
from tarragon.kube.meta import Json, JsonObject, Resource

_GROUP, _VERSION = "metrics.k8s.io", "v1beta1"
NODE_METRICS = Resource(
    group=_GROUP, version=_VERSION, plural="nodes", kind="NodeMetrics", model=dict, namespaced=False
)
POD_METRICS = Resource(group=_GROUP, version=_VERSION, plural="pods", kind="PodMetrics", model=dict)


async def read_usage(cluster: Client, namespace: str) -> Mapping[str, Resources] | None:
    """Return the usage by node name and by `namespace/name` of the pod; None if metrics are missing or forbidden."""
    try:
        pods = await cluster.list(POD_METRICS, Selector(namespace=namespace))
    except Unavailable:
        raise
    except ApiError:
        return None
    try:
        nodes = (await cluster.list(NODE_METRICS)).items
    except ApiError:
        nodes = []
    return {**dict(map(_node, nodes)), **dict(map(_pod, pods.items))}


def _node(found: JsonObject) -> tuple[str, Resources]:
    return str(found["metadata"]["name"]), _amounts(found.get("usage") or {})


def _pod(found: JsonObject) -> tuple[str, Resources]:
    metadata: Json = found["metadata"]
    containers: Json = found.get("containers") or []
    return f"{metadata['namespace']}/{metadata['name']}", add_resources(_amounts(each["usage"]) for each in containers)


def _amounts(usage: Mapping[str, str]) -> dict[str, int]:
    return dict(_parsed(usage))


def _parsed(usage: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for name, quantity in usage.items():
        try:
            yield name, parse_milli(quantity)
        except ValueError:
            continue
