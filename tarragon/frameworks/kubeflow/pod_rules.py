"""Validation rules for pods of any framework. The API server would reject such pods only when they are created."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tarragon.base.errors import Problem
from tarragon.base.quantity import parse_milli
from tarragon.frameworks.plugin import Rule
from tarragon.job.model import ReplicaSpec, TrainingJob
from tarragon.kube.field_reader import join_path
from tarragon.kube.meta import JsonObject
from tarragon.kube.name_validation import PORT_NAME_MAX_LENGTH, dns_label_error, port_name
from tarragon.kube.scheduling.gpu_shares import SHARE_RESOURCES, kubeshare_field

MAX_PORT = 65535

WithPath = tuple[str, JsonObject]
"""A part of a manifest with its path."""


def containers_present(job: TrainingJob) -> Iterator[Problem]:
    for group in job.replica_specs:
        if not _containers(group, "containers"):
            yield Problem(f"{group.field_path}.template.spec.containers", "is empty", "a replica needs a container")


def images_present(job: TrainingJob) -> Iterator[Problem]:
    for path, container in all_containers(job):
        if not container.get("image"):
            yield Problem(f"{path}.image", "is missing", "say which image the container runs")


def container_names(job: TrainingJob) -> Iterator[Problem]:
    """The containers of a pod, including init containers, need valid and unique names."""
    for group in job.replica_specs:
        seen: set[str] = set()
        for path, container in _containers_of(group):
            name = container.get("name", "")
            fault = dns_label_error(name, may_begin_with_digit=True)
            if name in seen:
                yield Problem(f"{path}.name", f"duplicate container name {name}")
            elif fault is not None and "name" in container:
                yield Problem(f"{path}.name", f'"{name}" {fault}')
            seen.add(name)


def ports_valid(job: TrainingJob) -> Iterator[Problem]:
    for path, container in all_containers(job):
        ports = container.get("ports", [])
        times = Counter(port.get("name") for port in ports)
        for index, port in enumerate(ports):
            yield from _port_faults(f"{path}.ports[{index}]", port, times)


def resources_valid(job: TrainingJob) -> Iterator[Problem]:
    """A request must not exceed its limit, and numbers of devices must be whole."""
    for path, container in all_containers(job):
        resources = container.get("resources", {})
        requests, limits = resources.get("requests", {}), resources.get("limits", {})
        for name, amount in requests.items():
            if name in limits and parse_milli(amount) > parse_milli(limits[name]):
                at = join_path(f"{path}.resources.requests", name)
                yield Problem(at, f"{amount} exceeds the limit of {limits[name]}")
        for kind, amounts in (("requests", requests), ("limits", limits)):
            for name, amount in amounts.items():
                if _is_device(name) and parse_milli(amount) % 1000:
                    yield Problem(join_path(f"{path}.resources.{kind}", name), f"must be a whole number, not {amount}")


def _port_faults(path: str, port: JsonObject, times: Counter[str | None]) -> Iterator[Problem]:
    number, name = port.get("containerPort", 1), port.get("name")
    if not 0 < number <= MAX_PORT:
        yield Problem(f"{path}.containerPort", f"must be from 1 to {MAX_PORT}, not {number}")
    if name is None:
        return
    if port_name(name):
        limit = f"at most {PORT_NAME_MAX_LENGTH} lower-case letters, digits and single dashes"
        yield Problem(f"{path}.name", f'must be {limit}, not "{name}"')
    if times[name] > 1:
        yield Problem(f"{path}.name", f"duplicate port name {name}")


def _is_device(name: str) -> bool:
    """Whether the resource is a device. Amounts of shares of GPUs have rules of their own."""
    is_share = name in SHARE_RESOURCES or kubeshare_field(name) is not None
    return "/" in name and not name.startswith("kubernetes.io/") and not is_share


def all_containers(job: TrainingJob) -> Iterator[WithPath]:
    """The containers of all templates of the job, including init containers."""
    for group in job.replica_specs:
        yield from _containers_of(group)


def _containers_of(group: ReplicaSpec) -> Iterator[WithPath]:
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_containers(group, kind)):
            yield f"{group.field_path}.template.spec.{kind}[{index}]", container


def _containers(group: ReplicaSpec, kind: str) -> list[JsonObject]:
    found: list[JsonObject] = group.template.get("spec", {}).get(kind, [])
    return found


POD_RULES: tuple[Rule, ...] = (containers_present, images_present, container_names, ports_valid, resources_valid)
