"""The rules of kinds that are stored for whoever reads them: networking, endpoint slices, storage drivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.schema import names
from tarragon.localcluster.schema.field_errors import Fault, invalid_value, required, unsupported

Json = dict[str, Any]

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")


def prepare_ingress(ingress: Json) -> None:
    ingress["status"] = {"loadBalancer": {}}


def ingress_faults(ingress: Mapping[str, Any]) -> Iterator[Fault]:
    spec = ingress.get("spec") or {}
    rules = spec.get("rules") or []
    if not rules and not spec.get("defaultBackend"):
        yield invalid_value("spec", rules, "either `defaultBackend` or `rules` must be specified")
    for index, rule in enumerate(rules):
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            yield from _path_faults(f"spec.rules[{index}].http.paths[{number}]", path)


def _path_faults(place: str, path: Mapping[str, Any]) -> Iterator[Fault]:
    kind = path.get("pathType")
    if kind is None:
        yield required(f"{place}.pathType", "pathType must be specified")
    elif kind not in _PATH_TYPES:
        yield unsupported(f"{place}.pathType", kind, _PATH_TYPES)
    elif kind != "ImplementationSpecific" and not str(path.get("path") or "").startswith("/"):
        yield invalid_value(f"{place}.path", path.get("path") or "", "must be an absolute path")


def ingress_class_faults(ingress_class: Mapping[str, Any]) -> Iterator[Fault]:
    if not (ingress_class.get("spec") or {}).get("controller"):
        yield required("spec.controller")


def prepare_network_policy(policy: Json) -> None:
    default_network_policy(policy, {})


def default_network_policy(policy: Json, _: Mapping[str, Any]) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


def prepare_slice(endpoint_slice: Json) -> None:
    default_slice(endpoint_slice, {})


def default_slice(endpoint_slice: Json, _: Mapping[str, Any]) -> None:
    for port in endpoint_slice.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def slice_faults(endpoint_slice: Mapping[str, Any]) -> Iterator[Fault]:
    kind = endpoint_slice.get("addressType")
    if not kind:
        yield required("addressType")
    elif kind not in _ADDRESS_TYPES:
        yield unsupported("addressType", kind, _ADDRESS_TYPES)
    for index, endpoint in enumerate(endpoint_slice.get("endpoints") or ()):
        if not endpoint.get("addresses"):
            yield required(f"endpoints[{index}].addresses", "must contain at least 1 address")


def slice_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Fault]:
    if new.get("addressType") != old.get("addressType"):
        yield invalid_value("addressType", new.get("addressType"), "field is immutable")


def prepare_driver(driver: Json) -> None:
    default_driver(driver, {})


def default_driver(driver: Json, _: Mapping[str, Any]) -> None:
    spec = driver.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    for name in ("podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"):
        spec.setdefault(name, False)


def prepare_storage_class(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def storage_class_faults(storage_class: Mapping[str, Any]) -> Iterator[Fault]:
    if not storage_class.get("provisioner"):
        yield required("provisioner")


def runtime_class_faults(runtime_class: Mapping[str, Any]) -> Iterator[Fault]:
    handler = runtime_class.get("handler") or ""
    if words := names.label(handler):
        yield invalid_value("handler", handler, words)


def runtime_class_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Fault]:
    if new.get("handler") != old.get("handler"):
        yield invalid_value("handler", new.get("handler"), "field is immutable")
