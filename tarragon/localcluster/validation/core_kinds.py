"""Defaults and validation of the smaller built-in kinds."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.base.quantity import parse_milli
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

_TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
_ACCOUNT = "kubernetes.io/service-account.name"
_MAX_DATA_BYTES = 1024 * 1024
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def prepare_secret(secret: Json) -> None:
    """Set the type, and move the write-only `stringData` into `data`, where it wins."""
    secret["type"] = secret.get("type") or "Opaque"
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def update_secret(secret: Json, _: Mapping[str, Any]) -> None:
    prepare_secret(secret)


def secret_faults(secret: Mapping[str, Any]) -> Iterator[FieldError]:
    if secret.get("type") == _TOKEN_TYPE and not (secret["metadata"].get("annotations") or {}).get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")
    yield from _key_faults("data", secret.get("data") or {})
    yield from _size_faults("data", secret.get("data") or {})


def secret_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    if new.get("type") != old.get("type"):
        yield invalid_value("type", new.get("type"), "field is immutable")
    yield from _immutability_faults(new, old, ("data",))


def config_map_faults(config_map: Mapping[str, Any]) -> Iterator[FieldError]:
    data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    yield from _key_faults("data", data)
    for key in data:
        if key in binary:
            yield invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    yield from _key_faults("binaryData", binary)
    yield from _size_faults("", {**data, **binary})


def config_map_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from _immutability_faults(new, old, ("data", "binaryData"))


def prepare_namespace(namespace: Json) -> None:
    """Set the finalizer that the namespace controller removes when the namespace is empty."""
    spec = namespace.setdefault("spec", {})
    if "kubernetes" not in spec.setdefault("finalizers", []):
        spec["finalizers"].append("kubernetes")
    namespace["status"] = {"phase": "Active"}
    _label_namespace(namespace)


def update_namespace(namespace: Json, old: Mapping[str, Any]) -> None:
    """Keep `spec`, because only the subresource `finalize` may change its finalizers."""
    namespace["spec"] = old.get("spec") or {}
    _label_namespace(namespace)


def prepare_claim(claim: Json) -> None:
    default_claim(claim, {})
    claim["status"] = {"phase": "Pending"}


def default_claim(claim: Json, _: Mapping[str, Any]) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def claim_faults(claim: Mapping[str, Any]) -> Iterator[FieldError]:
    spec = claim["spec"]
    modes = spec.get("accessModes") or []
    if not modes:
        yield required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield unsupported("spec.accessModes", mode, _ACCESS_MODES)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if not storage:
        yield required("spec.resources[storage]")
    elif parse_milli(storage) <= 0:
        yield invalid_value("spec.resources[storage]", storage, "must be greater than zero")


def claim_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of changes to the spec: only the requests, and the volume's name if it is not set, may change."""

    def immutable(claim: Mapping[str, Any]) -> Json:
        return {name: value for name, value in claim["spec"].items() if name != "resources"}

    before, after = immutable(old), immutable(new)
    if not before.get("volumeName"):
        after.pop("volumeName", None)
    if before != after:
        words = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield forbidden_value("spec", words)


def prepare_volume(volume: Json) -> None:
    volume.setdefault("spec", {}).setdefault("persistentVolumeReclaimPolicy", "Retain")
    volume["spec"].setdefault("volumeMode", "Filesystem")
    if volume["spec"].get("hostPath") is not None:
        volume["spec"]["hostPath"].setdefault("type", "")
    volume["status"] = {"phase": "Pending"}


def prepare_storage_class(storage_class: Json) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def storage_class_faults(storage_class: Mapping[str, Any]) -> Iterator[FieldError]:
    if not storage_class.get("provisioner"):
        yield required("provisioner")


def lease_faults(lease: Mapping[str, Any]) -> Iterator[FieldError]:
    spec = lease.get("spec") or {}
    if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
        yield invalid_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
    if spec.get("leaseTransitions") is not None and spec["leaseTransitions"] < 0:
        words = "must be greater than or equal to 0"
        yield invalid_value("spec.leaseTransitions", spec["leaseTransitions"], words)


def prepare_priority_class(priority: Json) -> None:
    priority.setdefault("value", 0)
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


def priority_class_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    for field, path in (("value", "value"), ("preemptionPolicy", "preemptionPolicy")):
        if new.get(field) != old.get(field):
            yield forbidden_value(path, "may not be changed in an update.")


def prepare_node(node: Json) -> None:
    """Default the allocatable resources to the capacity. A kubelet registers its node with a status."""
    status = node.setdefault("status", {})
    if status.get("capacity"):
        status.setdefault("allocatable", dict(status["capacity"]))
    node.setdefault("spec", {})


def node_faults(node: Mapping[str, Any]) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        path = f"spec.taints[{index}]"
        if words := name_validation.qualified(taint.get("key", "")):
            yield invalid_value(f"{path}.key", taint.get("key", ""), words)
        if taint.get("effect") not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            yield unsupported(
                f"{path}.effect", taint.get("effect", ""), ("NoSchedule", "PreferNoSchedule", "NoExecute")
            )
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if identity in seen:
            yield duplicate(path, taint)
        seen.add(identity)


def _label_namespace(namespace: Json) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata.get("name", "")}


def _key_faults(path: str, data: Mapping[str, str]) -> Iterator[FieldError]:
    for key in data:
        if words := name_validation.config_key(key):
            yield invalid_value(f"{path}[{key}]", key, words)


def _size_faults(path: str, data: Mapping[str, str]) -> Iterator[FieldError]:
    if sum(len(value) for value in data.values()) > _MAX_DATA_BYTES:
        yield FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {_MAX_DATA_BYTES} bytes")


def _immutability_faults(
    new: Mapping[str, Any], old: Mapping[str, Any], fields: tuple[str, ...]
) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    words = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield forbidden_value("immutable", words)
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield forbidden_value(field, words)
