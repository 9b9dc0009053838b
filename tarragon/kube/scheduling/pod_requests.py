"""The resources that a pod requests, in thousandths, as Kubernetes counts them for scheduling, admission and quotas.

The rules are those of `k8s.io/component-helpers/resource` 1.37, without in-place resizes and resource claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, MEMORY, PODS, Resources, add_resources, maximum
from tarragon.kube.core import Container, PodSpec
from tarragon.kube.scheduling.host_ports import host_ports

ONE_POD = {PODS: 1000}
SIDECAR = "Always"
"""The restart policy of an init container that keeps running beside the later containers."""

Quantities = Mapping[str, str | int | float]

_OVERCOMMITTABLE = frozenset({CPU, MEMORY})
_HUGE_PAGES = "hugepages-"


def scheduling_request(spec: PodSpec) -> Resources:
    """Return what the pod takes from its node: whole units of resources, one of the node's pods, and host ports."""
    return {**resource_request(spec), **host_ports(spec)}


def resource_request(spec: PodSpec) -> Resources:
    """Return what the pod takes from its node, without host ports."""
    return {**whole_units(pod_requests(spec)), **ONE_POD}


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return the effective requests of the pod, with overhead.

    Defaults are filled in as the API server does: a missing request is the limit; a pod-level limit is the pod-level
    request unless a container requests the resource. Pod-level requests replace those of the containers.
    """
    requests = _peak(spec, _container_requests)
    limits = _pod_level(spec.resources.limits)
    defaulted = {name: amount for name, amount in limits.items() if name not in requests or _is_huge_pages(name)}
    effective = {**requests, **defaulted, **_pod_level(spec.resources.requests)}
    return add_resources([effective, amounts(spec.overhead)])


def pod_limits(spec: PodSpec) -> dict[str, int]:
    """Return the effective limits of the pod. Overhead is added to the resources that are limited."""
    limits = {
        **_peak(spec, lambda container: amounts(container.resources.limits)),
        **_pod_level(spec.resources.limits),
    }
    overhead = {name: amount for name, amount in amounts(spec.overhead).items() if limits.get(name)}
    return add_resources([limits, overhead])


def amounts(quantities: Quantities) -> dict[str, int]:
    """Return quantities in thousandths; 0 for those that no API server accepts, so that they stop nobody."""
    return {name: _milli(quantity) for name, quantity in quantities.items()}


def whole_units(resources: Resources) -> dict[str, int]:
    """Round up to whole units. Only cpu is counted in thousandths by kube-scheduler."""
    return {name: amount if name == CPU else -(-amount // 1000) * 1000 for name, amount in resources.items()}


def _peak(spec: PodSpec, of_container: Callable[[Container], Resources]) -> dict[str, int]:
    """Return the most that containers need at the same time; init containers run one after another."""
    sidecars: dict[str, int] = {}
    initializing: Resources = {}
    for container in spec.init_containers:
        needed = of_container(container)
        initializing = maximum(initializing, add_resources([sidecars, needed]))
        if container.restart_policy == SIDECAR:
            sidecars = add_resources([sidecars, needed])
    running = add_resources([sidecars, *map(of_container, spec.containers)])
    return maximum(running, initializing)


def _container_requests(container: Container) -> Resources:
    return amounts({**container.resources.limits, **container.resources.requests})


def _pod_level(quantities: Quantities) -> dict[str, int]:
    """Return the resources that can be requested for a pod as a whole."""
    return {
        name: amount for name, amount in amounts(quantities).items() if name in _OVERCOMMITTABLE or _is_huge_pages(name)
    }


def _is_huge_pages(name: str) -> bool:
    return name.startswith(_HUGE_PAGES)


@lru_cache(maxsize=4096)
def _milli(quantity: str | float) -> int:
    try:
        return max(0, parse_milli(quantity))
    except ValueError:
        return 0
