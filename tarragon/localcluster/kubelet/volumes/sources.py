"""Reads the ConfigMaps, Secrets and volume claims that a pod refers to, before its containers start."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarragon.client.errors import NotFound
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS
from tarragon.kube.meta import Key, PartialObject
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.volumes.tokens import TokenProjection

Files = Mapping[str, bytes]
"""The data of a ConfigMap or Secret, by key."""


class ConfigMap(PartialObject, frozen=True):
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Secret(PartialObject, frozen=True):
    data: dict[str, str] = {}


class _ClaimSpec(PartialObject, frozen=True):
    volume_name: str = ""


class VolumeClaim(PartialObject, frozen=True):
    spec: _ClaimSpec = _ClaimSpec()


class Volume(PartialObject, frozen=True):
    """A persistent volume: `spec` is like that of a pod's volume, with more fields."""

    spec: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReferences:
    """The names of the objects that a pod refers to, in its namespace."""

    config_maps: frozenset[str]
    secrets: frozenset[str]
    claims: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodObjects:
    """The existing objects that a pod refers to. The user of a missing object decides whether that is an error.

    `claims` are the volume specs of claims, empty without a volume. `tokens` are those of the pod's service account;
    empty when containers have no access to the API.
    """

    config_maps: Mapping[str, Files] = field(default_factory=dict)
    secrets: Mapping[str, Files] = field(default_factory=dict)
    claims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tokens: Mapping[TokenProjection, bytes] = field(default_factory=dict)


def object_references(pod: Pod) -> ObjectReferences:
    return ObjectReferences(
        config_maps=mounted_config_maps(pod).union(_names(pod, "config_map")),
        secrets=mounted_secrets(pod).union(_names(pod, "secret")),
        claims=frozenset(source.get("claimName") or "" for source in _of_volumes(pod, "persistentVolumeClaim")),
    )


def mounted_config_maps(pod: Pod) -> frozenset[str]:
    return frozenset(source.get("name") or "" for source in _config_map_volumes(pod))


def mounted_texts(pod: Pod, objects: PodObjects) -> list[str]:
    """The texts of the ConfigMaps that the pod mounts; only those of the keys that it selects."""
    texts = []
    for source in _config_map_volumes(pod):
        files = objects.config_maps.get(source.get("name") or "", {})
        keys = [item["key"] for item in source.get("items") or ()] or files
        texts += [files[key].decode(errors="ignore") for key in keys if key in files]
    return texts


def _config_map_volumes(pod: Pod) -> Iterator[Mapping[str, Any]]:
    yield from _of_volumes(pod, "configMap")
    yield from _of_projections(pod, "configMap")


def mounted_secrets(pod: Pod) -> frozenset[str]:
    volumes = {source.get("secretName") or "" for source in _of_volumes(pod, "secret")}
    return frozenset(volumes | {source.get("name") or "" for source in _of_projections(pod, "secret")})


def _of_volumes(pod: Pod, kind: str) -> Iterator[Mapping[str, Any]]:
    for volume in pod.spec.volumes:
        if source := volume.get(kind):
            yield source


def _of_projections(pod: Pod, kind: str) -> Iterator[Mapping[str, Any]]:
    for volume in pod.spec.volumes:
        for source in (volume.get("projected") or {}).get("sources") or []:
            if kind in source:
                yield source[kind]


def _names(pod: Pod, kind: str) -> Iterator[str]:
    for container in pod.spec.all_containers:
        for selector in _selectors(container, kind):
            if selector is not None:
                yield selector.name


def _selectors(container: Container, kind: str) -> Iterator[Any]:
    for source in container.env_from:
        yield getattr(source, f"{kind}_ref")
    for variable in container.env:
        if variable.value_from is not None:
            yield getattr(variable.value_from, f"{kind}_key_ref")


async def read_objects(cluster: Client, namespace: str, references: ObjectReferences) -> PodObjects:
    """Read the objects. Missing ones are left out; raises ApiError for any other error."""
    config_maps: dict[str, Files] = {}
    for name in _sorted_names(references.config_maps):
        config_map = await _get(cluster, CONFIG_MAPS.with_model(ConfigMap), Key(namespace, name))
        if config_map is not None:
            texts = {key: text.encode() for key, text in config_map.data.items()}
            config_maps[name] = texts | decode_base64_values(config_map.binary_data)
    secrets: dict[str, Files] = {}
    for name in _sorted_names(references.secrets):
        secret = await _get(cluster, SECRETS.with_model(Secret), Key(namespace, name))
        if secret is not None:
            secrets[name] = decode_base64_values(secret.data)
    claims: dict[str, Mapping[str, Any]] = {}
    for name in _sorted_names(references.claims):
        claim = await _get(cluster, PERSISTENT_VOLUME_CLAIMS.with_model(VolumeClaim), Key(namespace, name))
        if claim is not None:
            claims[name] = await _volume(cluster, claim)
    return PodObjects(config_maps=config_maps, secrets=secrets, claims=claims)


async def _volume(cluster: Client, claim: VolumeClaim) -> Mapping[str, Any]:
    """The spec of the claim's volume; empty in an embedded cluster, which has no persistent volumes."""
    if not claim.spec.volume_name:
        return {}
    volume = await _get(cluster, PERSISTENT_VOLUMES.with_model(Volume), Key("", claim.spec.volume_name))
    return {} if volume is None else volume.spec


def _sorted_names(names: Iterable[str]) -> list[str]:
    return sorted(filter(None, names))


async def _get(cluster: Client, resource: Any, key: Key) -> Any:
    try:
        return await cluster.get(resource, key)
    except NotFound:
        return None


def decode_base64_values(data: Mapping[str, str]) -> dict[str, bytes]:
    """Decode base64 values. The API server has validated them; an invalid value becomes empty."""
    files = {}
    for key, text in data.items():
        try:
            files[key] = base64.b64decode(text)
        except (binascii.Error, ValueError):
            files[key] = b""
    return files
