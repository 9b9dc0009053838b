"""Defaults and validation of services. Allocation of addresses and ports is in registry/service_addresses.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.kube import name_validation
from tarragon.localcluster.schema.field_errors import (
    FieldError,
    duplicate,
    forbidden_value,
    invalid_value,
    required,
    unsupported,
)

Json = dict[str, Any]

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITY_SECONDS = 10_800
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_LARGEST_PORT = 65535
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_NODE_PORT_TYPES = ("NodePort", "LoadBalancer")
_CLUSTER_IP_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")


def prepare_service(service: Json) -> None:
    service["status"] = {"loadBalancer": {}}
    default_service(service, {})


def default_service(service: Json, old: Mapping[str, Any]) -> None:
    """Fill in defaults. An update without the allocated address keeps it."""
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    _carry_over(spec, old.get("spec") or {})
    if spec.setdefault("sessionAffinity", "None") == "ClientIP":
        affinity = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        affinity.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))
    if spec["type"] == "ExternalName":
        return
    _default_families(spec)
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in _NODE_PORT_TYPES:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _default_families(spec: Json) -> None:
    """Default the IP families. A headless service without a selector may have endpoints of both."""
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    takes_any_family = spec.get("clusterIP") == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if takes_any_family else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if takes_any_family else "SingleStack")


def _carry_over(spec: Json, old: Mapping[str, Any]) -> None:
    if spec["type"] == "ExternalName":
        _drop_addresses(spec, old)
        return
    if not spec.get("clusterIP"):
        spec |= {field: old[field] for field in ("clusterIP", "clusterIPs") if old.get(field)}
    if old and spec["type"] not in _NODE_PORT_TYPES:
        spec.pop("externalTrafficPolicy", None)
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)


def _drop_addresses(spec: Json, old: Mapping[str, Any]) -> None:
    if old.get("type") in {None, "ExternalName"}:
        return
    for field in _CLUSTER_IP_FIELDS:
        if spec.get(field) == old.get(field):
            spec.pop(field, None)


def service_faults(service: Mapping[str, Any]) -> Iterator[FieldError]:
    spec = service["spec"]
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        yield required("spec.ports")
    if spec["type"] not in _SERVICE_TYPES:
        yield unsupported("spec.type", spec["type"], _SERVICE_TYPES)
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    yield from _selector_faults(spec.get("selector") or {})
    taken: set[Any] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        yield from _service_port_faults(path, port, is_alone=len(ports) == 1)
        for field, key in ((f"{path}.name", port.get("name")), (path, (port["protocol"], port.get("port")))):
            if key and key in taken:
                yield duplicate(field, key if isinstance(key, str) else port)
            taken.add(key)


def service_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    if "ExternalName" in {new["spec"].get("type"), old["spec"].get("type")}:
        return
    before, after = old["spec"].get("clusterIP", ""), new["spec"].get("clusterIP", "")
    if before and before != after:
        yield invalid_value("spec.clusterIPs[0]", [after], "may not change once set")


def service_status_faults(service: Mapping[str, Any]) -> Iterator[FieldError]:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress")
    if ingress and service["spec"]["type"] != "LoadBalancer":
        words = "may only be used when `spec.type` is 'LoadBalancer'"
        yield forbidden_value("status.loadBalancer.ingress", words)


def _service_port_faults(path: str, port: Mapping[str, Any], *, is_alone: bool) -> Iterator[FieldError]:
    if not port.get("name"):
        if not is_alone:
            yield required(f"{path}.name")
    elif words := name_validation.label(port["name"]):
        yield invalid_value(f"{path}.name", port["name"], words)
    for field in ("port", "targetPort"):
        number = port.get(field, 0)
        if isinstance(number, str):
            yield from (invalid_value(f"{path}.{field}", number, words) for words in name_validation.port_name(number))
        elif not 0 < number <= _LARGEST_PORT:
            yield invalid_value(f"{path}.{field}", number, f"must be between 1 and {_LARGEST_PORT}, inclusive")
    if port["protocol"] not in _PROTOCOLS:
        yield unsupported(f"{path}.protocol", port["protocol"], _PROTOCOLS)


def _selector_faults(selector: Mapping[str, str]) -> Iterator[FieldError]:
    for key, value in selector.items():
        for text, words in ((key, name_validation.qualified(key)), (value, name_validation.label_value(value))):
            if words:
                yield invalid_value("spec.selector", text, words)


def prepare_slice(endpoint_slice: Json) -> None:
    default_slice(endpoint_slice, {})


def default_slice(endpoint_slice: Json, _: Mapping[str, Any]) -> None:
    for port in endpoint_slice.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def slice_faults(endpoint_slice: Mapping[str, Any]) -> Iterator[FieldError]:
    kind = endpoint_slice.get("addressType")
    if not kind:
        yield required("addressType")
    elif kind not in _ADDRESS_TYPES:
        yield unsupported("addressType", kind, _ADDRESS_TYPES)
    for index, endpoint in enumerate(endpoint_slice.get("endpoints") or ()):
        if not endpoint.get("addresses"):
            yield required(f"endpoints[{index}].addresses", "must contain at least 1 address")


def slice_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    if new.get("addressType") != old.get("addressType"):
        yield invalid_value("addressType", new.get("addressType"), "field is immutable")
