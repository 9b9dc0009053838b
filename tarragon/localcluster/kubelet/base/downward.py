"""The downward API: values of fieldRef and resourceFieldRef."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, Resources
from tarragon.localcluster.kubelet.base.errors import CannotStart
from tarragon.localcluster.kubelet.base.spec import Container, Pod, ResourceFieldSelector

LOOPBACK = "127.0.0.1"
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def field_value(pod: Pod, path: str) -> str:
    """The value of a fieldRef. Raises CannotStart for an unsupported path."""
    metadata, spec = pod.metadata, pod.spec
    if match := _SUBSCRIPT.fullmatch(path):
        return (metadata.labels if match[1] == "labels" else metadata.annotations).get(match[2], "")
    address, host = (str(pod.status.get(name) or LOOPBACK) for name in ("podIP", "hostIP"))
    values = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "spec.nodeName": spec.node_name,
        "spec.serviceAccountName": spec.service_account_name,
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": host,
        "status.hostIPs": host,
        "metadata.labels": _lines(metadata.labels),
        "metadata.annotations": _lines(metadata.annotations),
    }
    if path not in values:
        raise CannotStart(f"unsupported fieldPath: {path}")
    return values[path]


def _lines(entries: Mapping[str, str]) -> str:
    return "\n".join(f'{name}="{_escaped(text)}"' for name, text in sorted(entries.items()))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(pod: Pod, own: Container, selector: ResourceFieldSelector, allocatable: Resources) -> str:
    """The value of a resourceFieldRef. An unset limit is the node's allocatable amount."""
    containers = {container.name: container for container in pod.spec.all_containers}
    container = containers.get(selector.container_name) if selector.container_name else own
    if container is None:
        raise CannotStart(f"container {selector.container_name} not found")
    kind, _, name = selector.resource.partition(".")
    if kind not in {"limits", "requests"} or not name:
        raise CannotStart(f"unsupported container resource: {selector.resource}")
    divisor = parse_milli(selector.divisor) or 1000
    return str(-(-_amount(container, kind, name, allocatable) // divisor))


def _amount(container: Container, kind: str, name: str, allocatable: Resources) -> int:
    limits, requests = container.resources.limits, container.resources.requests
    declared = limits.get(name) if kind == "limits" else requests.get(name, limits.get(name))
    if declared is not None:
        return parse_milli(declared)
    return allocatable.get(name, 0) if kind == "limits" else 0


def cpu_count(container: Container) -> int | None:
    """The container's CPU limit, else its request, in whole CPUs (at least 1); None when neither is set."""
    for amounts in (container.resources.limits, container.resources.requests):
        if CPU in amounts:
            return max(1, parse_milli(amounts[CPU]) // 1000)
    return None
