"""Finds the claims of a job that nothing in the cluster can bind: neither a StorageClass nor an existing volume."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tarragon.base.errors import Problem
from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.manifest.dependencies import dependencies_of
from tarragon.client.errors import ApiError
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    PersistentVolume,
    PersistentVolumeClaim,
)
from tarragon.kube.meta import JsonObject, Key
from tarragon.plan.nodes.storage import NO_PROVISIONER, can_bind

_CLAIMS = PERSISTENT_VOLUME_CLAIMS.with_model(dict)
_CLASSES = STORAGE_CLASSES.with_model(dict)
_VOLUMES = PERSISTENT_VOLUMES.with_model(PersistentVolume)
_IS_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_REMEDY = "pods that use it do not start until it is bound; `kubectl get storageclass` lists what there is"


async def unbindable_claims(reader: ClusterReader, job: JsonObject, brought: Iterable[JsonObject]) -> list[Problem]:
    """Returns a Problem for each claim that can't be bound. `brought` are the objects in FILE.

    Says nothing of claims that are missing or may not be read, nor if the user may not list classes and volumes.
    """
    claims = await _unbound_claims(
        reader, job, {each["metadata"].get("name"): each for each in brought if _is_claim(each)}
    )
    if not claims:
        return []
    try:
        classes = (await reader.list(_CLASSES)).items
        volumes = (await reader.list(_VOLUMES)).items
    except ApiError:
        return []
    provisioners = {str(each["metadata"]["name"]): str(each.get("provisioner", "")) for each in classes}
    default = next((str(each["metadata"]["name"]) for each in classes if _is_default(each)), None)
    return [
        Problem(path, f"PersistentVolumeClaim {claim['metadata']['name']} can't be bound: {reason}", _REMEDY)
        for path, claim in claims.items()
        for reason in [_reason(claim, provisioners, default, volumes)]
        if reason
    ]


async def _unbound_claims(
    reader: ClusterReader, job: JsonObject, brought: Mapping[str, JsonObject]
) -> dict[str, JsonObject]:
    """Returns the job's claims that are not bound, each by the path that names it first."""
    found: dict[str, JsonObject] = {}
    names: set[str] = set()
    for need in dependencies_of(job):
        if need.resource is not PERSISTENT_VOLUME_CLAIMS or need.name in names:
            continue
        names.add(need.name)
        claim = brought.get(need.name) or await _read_claim(reader, Key(str(job["metadata"]["namespace"]), need.name))
        if claim is None:
            continue
        if (claim.get("status") or {}).get("phase") != "Bound" and not _spec(claim).get("volumeName"):
            found[need.path] = claim
    return found


async def _read_claim(reader: ClusterReader, key: Key) -> JsonObject | None:
    """Returns the claim; None if it is missing, which is said elsewhere, or may not be read."""
    try:
        found = await reader.get(_CLAIMS, key)
    except ApiError:
        return None
    return found


def _reason(
    claim: JsonObject, provisioners: Mapping[str, str], default: str | None, volumes: Collection[PersistentVolume]
) -> str:
    """Why nothing can bind the claim; empty if something may."""
    name = _spec(claim).get("storageClassName", default)
    spec = {**_spec(claim), "storageClassName": name or ""}
    typed = decode(encode({**claim, "spec": spec}), PersistentVolumeClaim)
    if any(can_bind(volume, typed) for volume in volumes):
        return ""
    if name is None:
        return "it names no StorageClass, none is the default, and no PersistentVolume fits"
    if not name:
        return 'storageClassName "" asks for a PersistentVolume, and none fits'
    if name not in provisioners:
        return f"there is no StorageClass {name}, and no PersistentVolume fits"
    return f"StorageClass {name} creates no volumes, and none fits" if provisioners[name] == NO_PROVISIONER else ""


def _is_claim(body: JsonObject) -> bool:
    return body.get("kind") == PERSISTENT_VOLUME_CLAIMS.kind


def _is_default(storage_class: JsonObject) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return any(annotations.get(name) == "true" for name in _IS_DEFAULT)


def _spec(claim: JsonObject) -> JsonObject:
    return claim.get("spec") or {}
