"""The resources that a pod requests, in thousandths, as Kubernetes counts them for scheduling, admission and quotas.

The rules are those of `k8s.io/component-helpers/resource` 1.37, without resource claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, MEMORY, PODS, Resources, add_resources, maximum
from tarragon.kube.core import Container, ContainerStatus, PodSpec, PodStatus
from tarragon.kube.scheduling.host_ports import host_ports

ONE_POD = {PODS: 1000}
NOT_STARTED = PodStatus()

Quantities = Mapping[str, str | int | float]

_OVERCOMMITTABLE = frozenset({CPU, MEMORY})
_HUGE_PAGES = "hugepages-"


def scheduling_request(spec: PodSpec, status: PodStatus = NOT_STARTED) -> Resources:
    """Return what the pod takes from its node: whole units of resources, one of the node's pods, and host ports."""
    return {**resource_request(spec, status), **host_ports(spec)}


def resource_request(spec: PodSpec, status: PodStatus = NOT_STARTED) -> Resources:
    """Return what the pod takes from its node, without host ports."""
    return {**whole_units(pod_requests(spec, status)), **ONE_POD}


def pod_requests(spec: PodSpec, status: PodStatus = NOT_STARTED) -> dict[str, int]:
    """Return the effective requests of the pod, with overhead.

    Defaults are filled in as the API server does: a missing request is the limit; a pod-level limit is the pod-level
    request unless a container requests the resource. Pod-level requests replace those of the containers. During an
    in-place resize, a pod holds the largest of what its spec requests and what its status reports.
    """
    requests = _aggregated(spec, status)
    limits = _pod_level(spec.resources.limits)
    defaulted = {name: amount for name, amount in limits.items() if name not in requests or _is_huge_pages(name)}
    effective = {**requests, **defaulted, **_pod_level_requests(spec, status)}
    return add_resources([effective, amounts(spec.overhead)])


def reports_resources(status: PodStatus) -> bool:
    """Whether the status has resources, which may differ from those of the spec."""
    return bool(status.allocated_resources or status.resources) or any(
        each.allocated_resources is not None or each.resources is not None
        for each in (*status.container_statuses, *status.init_container_statuses)
    )


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
        if container.is_sidecar:
            sidecars = add_resources([sidecars, needed])
    running = add_resources([sidecars, *map(of_container, spec.containers)])
    return maximum(running, initializing)


def _aggregated(spec: PodSpec, status: PodStatus) -> dict[str, int]:
    """Return the requests of all containers. The status counts, too, where it reports resources."""
    requested = _peak(spec, _container_requests)
    if not reports_resources(status):
        return requested
    is_infeasible = _is_resize_infeasible(status)
    statuses = {each.name: each for each in (*status.container_statuses, *status.init_container_statuses)}

    def unreported(container: Container) -> Resources:
        return {} if is_infeasible else _container_requests(container)

    def allocated(container: Container) -> Resources:
        found = statuses.get(container.name, ContainerStatus()).allocated_resources
        return unreported(container) if found is None else amounts(found)

    def actuated(container: Container) -> Resources:
        found = statuses.get(container.name, ContainerStatus()).resources
        return amounts(found.requests) if found is not None and found.requests else allocated(container)

    reported = maximum(_peak(spec, allocated), _peak(spec, actuated))
    return reported if is_infeasible else maximum(requested, reported)


def _pod_level_requests(spec: PodSpec, status: PodStatus) -> dict[str, int]:
    requested = _pod_level(spec.resources.requests)
    if not requested or status.resources is None:
        return requested
    reported = maximum(_pod_level(status.resources.requests), _pod_level(status.allocated_resources or {}))
    return reported if _is_resize_infeasible(status) else maximum(requested, reported)


def _is_resize_infeasible(status: PodStatus) -> bool:
    """Whether the node can't grant the resize that the spec requests, so that it does not count."""
    pending = next((each for each in status.conditions if each.type == "PodResizePending"), None)
    return pending is not None and pending.reason == "Infeasible"


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
