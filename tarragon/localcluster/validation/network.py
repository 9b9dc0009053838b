"""The rules of kinds that are stored for whoever reads them: networking, endpoint slices, storage drivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.schema.field_errors import Fault, invalid_value, required, unsupported

Json = dict[str, Any]

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")


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


def prepare_storage_class(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def storage_class_faults(storage_class: Mapping[str, Any]) -> Iterator[Fault]:
    if not storage_class.get("provisioner"):
        yield required("provisioner")
