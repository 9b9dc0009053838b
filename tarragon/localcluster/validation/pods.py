"""Defaults and validation of pods, and of the few changes that they allow.

Admission, not this module, adds the volume of the service account.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.base.quantity import parse_milli
from tarragon.kube import name_validation
from tarragon.localcluster.kinds.go_types import decode_in_place, go_type_of
from tarragon.localcluster.schema.field_errors import (
    FieldError,
    duplicate,
    forbidden_value,
    invalid_value,
    not_found_value,
    quoted,
    required,
    unsupported,
)
from tarragon.localcluster.validation import pod_scheduling, probes, tolerations, volumes

Json = dict[str, Any]

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_LARGEST_PORT = 65535
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_CHANGEABLE_FIELDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_NATIVE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_MILLI = 1000


def prepare_create(pod: Json) -> None:
    """Fill in defaults and the first status."""
    spec = pod.setdefault("spec", {})
    _default_spec(spec)
    tolerations.add_default_tolerations(spec)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [pod_scheduling.gated_condition(pod["metadata"]["creationTimestamp"])]


def prepare_update(pod: Json, _: Mapping[str, Any]) -> None:
    _default_spec(pod.setdefault("spec", {}))


def faults(pod: Mapping[str, Any]) -> Iterator[FieldError]:
    spec = pod["spec"]
    volume_names = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    yield from _name_faults("spec.volumes", volume_names)
    yield from volumes.faults("spec.volumes", spec.get("volumes") or ())
    yield from tolerations.faults("spec.tolerations", spec.get("tolerations") or ())
    containers = spec.get("containers") or []
    if not containers:
        yield required("spec.containers")
    yield from _container_faults("spec.containers", containers, set(volume_names))
    init_containers = spec.get("initContainers") or []
    yield from _container_faults("spec.initContainers", init_containers, set(volume_names))
    yield from _handler_faults(spec, containers, init_containers)
    yield from _shared_name_faults("spec.initContainers", init_containers, containers)
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        yield unsupported("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    if spec["dnsPolicy"] not in _DNS_POLICIES:
        yield unsupported("spec.dnsPolicy", spec["dnsPolicy"], _DNS_POLICIES)
    if spec["dnsPolicy"] == "None" and not spec.get("dnsConfig"):
        yield required("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
    yield from _spec_value_faults(spec)
    yield from pod_scheduling.gate_faults(spec)
    yield from pod_scheduling.resource_faults(spec)


def update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of an update. Only images, the deadline (downwards) and tolerations (additions) of a spec may change."""
    before, after = old["spec"], new["spec"]
    for field in ("containers", "initContainers"):
        if len(after.get(field) or ()) != len(before.get(field) or ()):
            yield forbidden_value(f"spec.{field}", "pod updates may not add or remove containers")
            return
    yield from _deadline_faults(after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    yield from _toleration_faults(after, before)
    yield from pod_scheduling.added_gate_faults(after, before)
    changed = sorted(_differences("spec", _immutable_part(before), _immutable_part(after)))
    if changed:
        changed = sorted(_differences("spec", _immutable_part(_normalized(old)), _immutable_part(after)))
    if changed:
        yield forbidden_value("spec", f"{_CHANGEABLE_FIELDS}\n  changed: {', '.join(changed)}")


def qos_class(spec: Mapping[str, Any]) -> str:
    """The QoS class, Guaranteed, Burstable or BestEffort, from the CPU and memory of all containers, or of the pod."""
    has_requests, has_limits, is_guaranteed = False, False, True
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for container in [{"resources": spec["resources"]}] if spec.get("resources") else containers:
        declared = container.get("resources") or {}
        requests, limits = _compute_amounts(declared.get("requests")), _compute_amounts(declared.get("limits"))
        has_requests, has_limits = has_requests or bool(requests), has_limits or bool(limits)
        if len(limits) < 2 or requests != limits:  # noqa: PLR2004 - both CPU and memory
            is_guaranteed = False
    if not has_requests and not has_limits:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"


def _default_spec(spec: Json) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("enableServiceLinks", True)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        _default_container(container)
        for port in container.get("ports") or ():
            if spec.get("hostNetwork") and port.get("containerPort"):
                port.setdefault("hostPort", port["containerPort"])
    for volume in spec.get("volumes") or ():
        volumes.default_volume(volume)
    pod_scheduling.default_resources(spec)


def _default_container(container: Json) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    tag = str(container.get("image", "")).rpartition("/")[2].partition(":")[2]
    is_latest = "@" not in str(container.get("image", "")) and tag in {"", "latest"}
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
    declared = container.setdefault("resources", {})
    if declared.get("limits"):
        declared["requests"] = {**declared["limits"], **(declared.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _default_source(source)
        if variable.get("value") == "":
            del variable["value"]
    probes.default_handlers(container)


def _default_source(source: Json) -> None:
    if source.get("fieldRef") is not None:
        source["fieldRef"].setdefault("apiVersion", "v1")
    if source.get("resourceFieldRef") is not None:
        source["resourceFieldRef"].setdefault("divisor", "0")


def _container_faults(path: str, containers: list[Json], volume_names: set[str]) -> Iterator[FieldError]:
    yield from _name_faults(path, [container.get("name", "") for container in containers])
    for index, container in enumerate(containers):
        place = f"{path}[{index}]"
        if not container.get("image"):
            yield required(f"{place}.image")
        elif container["image"].strip() != container["image"]:
            words = "must not have leading or trailing whitespace"
            yield invalid_value(f"{place}.image", container["image"], words)
        if container["imagePullPolicy"] not in _PULL_POLICIES:
            yield unsupported(f"{place}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES)
        if (policy := container["terminationMessagePolicy"]) not in _MESSAGE_POLICIES:
            yield unsupported(f"{place}.terminationMessagePolicy", policy, _MESSAGE_POLICIES)
        yield from _port_faults(f"{place}.ports", container.get("ports") or ())
        yield from _env_faults(f"{place}.env", container.get("env") or ())
        yield from _mount_faults(f"{place}.volumeMounts", container.get("volumeMounts") or (), volume_names)
        yield from _resource_faults(f"{place}.resources", container["resources"])


def _handler_faults(
    spec: Mapping[str, Any], containers: list[Json], init_containers: list[Json]
) -> Iterator[FieldError]:
    grace = spec["terminationGracePeriodSeconds"]
    for index, container in enumerate(containers):
        yield from probes.faults(f"spec.containers[{index}]", container, grace)
        if container.get("restartPolicy") is not None:
            yield forbidden_value(f"spec.containers[{index}].restartPolicy", "may not be set for non-init containers")
    for index, container in enumerate(init_containers):
        yield from probes.init_container_faults(f"spec.initContainers[{index}]", container)
        if container.get("restartPolicy") == "Always":
            yield from probes.faults(f"spec.initContainers[{index}]", container, grace)


def _name_faults(path: str, found: list[str]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, name in enumerate(found):
        if not name:
            yield required(f"{path}[{index}].name")
        elif words := name_validation.label(name):
            yield invalid_value(f"{path}[{index}].name", name, words)
        elif name in seen:
            yield duplicate(f"{path}[{index}].name", name)
        seen.add(name)


def _shared_name_faults(path: str, init_containers: list[Json], containers: list[Json]) -> Iterator[FieldError]:
    taken = {container.get("name") for container in containers}
    for index, container in enumerate(init_containers):
        if container.get("name") and container["name"] in taken:
            yield duplicate(f"{path}[{index}].name", container["name"])


def _port_faults(path: str, ports: list[Json] | tuple[()]) -> Iterator[FieldError]:
    taken: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name") or ""
        if messages := name_validation.port_name(name) if name else []:
            yield from (invalid_value(f"{path}[{index}].name", name, message) for message in messages)
        elif name and name in taken:
            yield duplicate(f"{path}[{index}].name", name)
        taken.add(name)
        number = port.get("containerPort", 0)
        if not number:
            yield required(f"{path}[{index}].containerPort")
        elif not 0 < number <= _LARGEST_PORT:
            words = f"must be between 1 and {_LARGEST_PORT}, inclusive"
            yield invalid_value(f"{path}[{index}].containerPort", number, words)
        if port["protocol"] not in _PROTOCOLS:
            yield unsupported(f"{path}[{index}].protocol", port["protocol"], _PROTOCOLS)


def _env_faults(path: str, variables: list[Json] | tuple[()]) -> Iterator[FieldError]:
    for index, variable in enumerate(variables):
        name = variable.get("name")
        if not name:
            yield required(f"{path}[{index}].name")
        elif words := name_validation.env_name(name):
            yield invalid_value(f"{path}[{index}].name", name, words)
        source = variable.get("valueFrom")
        if source is None:
            continue
        if variable.get("value"):
            yield invalid_value(f"{path}[{index}].valueFrom", "", "may not be specified when `value` is not empty")
        elif len(source) != 1:
            words = (
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            )
            yield invalid_value(f"{path}[{index}].valueFrom", "", words)


def _mount_faults(path: str, mounts: list[Json] | tuple[()], volume_names: set[str]) -> Iterator[FieldError]:
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        if not mount.get("name"):
            yield required(f"{path}[{index}].name")
        elif mount["name"] not in volume_names:
            yield not_found_value(f"{path}[{index}].name", mount["name"])
        mount_path = mount.get("mountPath")
        if not mount_path:
            yield required(f"{path}[{index}].mountPath")
        elif mount_path in taken:
            yield invalid_value(f"{path}[{index}].mountPath", mount_path, "must be unique")
        taken.add(mount_path or "")


def _spec_value_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        yield invalid_value("spec.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    if spec["terminationGracePeriodSeconds"] < 0:
        grace = spec["terminationGracePeriodSeconds"]
        yield invalid_value("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    yield from _name_value_faults(spec)


def _name_value_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    for field in ("hostname", "subdomain"):
        if spec.get(field) and (words := name_validation.label(spec[field])):
            yield invalid_value(f"spec.{field}", spec[field], words)
    for field in ("nodeName", "serviceAccountName", "priorityClassName"):
        if spec.get(field) and (words := name_validation.subdomain(spec[field])):
            yield invalid_value(f"spec.{field}", spec[field], words)
    for key, value in (spec.get("nodeSelector") or {}).items():
        if words := name_validation.qualified(key):
            yield invalid_value("spec.nodeSelector", key, words)
        if words := name_validation.label_value(value):
            yield invalid_value("spec.nodeSelector", value, words)


def _deadline_faults(new: int | None, old: int | None) -> Iterator[FieldError]:
    if old is not None and new is None:
        words = "must not update from a positive integer to nil value"
        yield invalid_value("spec.activeDeadlineSeconds", "null", words)
    elif old is not None and new is not None and new > old:
        yield invalid_value("spec.activeDeadlineSeconds", new, "must be less than or equal to previous value")


def _toleration_faults(after: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    kept = after.get("tolerations") or []
    if any(toleration not in kept for toleration in before.get("tolerations") or ()):
        yield forbidden_value(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _immutable_part(spec: Mapping[str, Any]) -> Json:
    """The spec without the fields that may change."""
    rest = {
        name: value
        for name, value in spec.items()
        if name not in {"containers", "initContainers", "activeDeadlineSeconds", "tolerations", "schedulingGates"}
    }
    for field in ("containers", "initContainers"):
        rest[field] = [
            {name: value for name, value in container.items() if name != "image"} for container in spec.get(field) or ()
        ]
    return rest


def _normalized(pod: Mapping[str, Any]) -> Json:
    """The spec of a stored pod as it would be stored today: an earlier version may have had other defaults."""
    shape = go_type_of("", "v1", "Pod")
    normalized = copy.deepcopy(dict(pod))
    if shape is not None:
        decode_in_place(shape, normalized)
    _default_spec(normalized["spec"])
    spec: Json = normalized["spec"]
    return spec


def _differences(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                yield from _differences(f"{path}.{name}", before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                yield from _differences(f"{path}[{index}]", old, new)
    else:
        yield f"{path} from {quoted(before)} to {quoted(after)}"


def _compute_amounts(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    return {
        name: parse_milli(amount)
        for name, amount in (amounts or {}).items()
        if name in {"cpu", "memory"} and parse_milli(amount)
    }


def _resource_faults(path: str, resources: Mapping[str, Any]) -> Iterator[FieldError]:
    limits: Mapping[str, Any] = resources.get("limits") or {}
    requests: Mapping[str, Any] = resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _resource_name_faults(f"{path}.{field}[{name}]", name)
            yield from _resource_amount_faults(f"{path}.{field}[{name}]", name, amount)
    for name, amount in requests.items():
        if name in limits and _is_overcommittable(name) and parse_milli(amount) > parse_milli(limits[name]):
            yield invalid_value(f"{path}.requests", amount, f"must be less than or equal to {name} limit")
        elif name in limits and not _is_overcommittable(name) and parse_milli(amount) != parse_milli(limits[name]):
            yield invalid_value(f"{path}.requests", amount, f"must be equal to {name} limit")
        elif name not in limits and not _is_overcommittable(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")


def _is_overcommittable(name: str) -> bool:
    """Whether requests may be lower than limits. Devices and huge pages cannot be overcommitted."""
    return name in _NATIVE_RESOURCES


def _resource_name_faults(path: str, name: str) -> Iterator[FieldError]:
    if words := name_validation.qualified(name):
        yield invalid_value(path, name, words)
    elif "/" not in name and name not in _NATIVE_RESOURCES and not name.startswith("hugepages-"):
        yield invalid_value(path, name, "must be a standard resource type or fully qualified")
        yield invalid_value(path, name, "must be a standard resource for containers")


def _resource_amount_faults(path: str, name: str, amount: Any) -> Iterator[FieldError]:
    if parse_milli(amount) < 0:
        yield invalid_value(path, amount, "must be greater than or equal to 0")
    if "/" in name and parse_milli(amount) % _MILLI:
        yield invalid_value(path, amount, "must be an integer")
