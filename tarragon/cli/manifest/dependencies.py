"""Finds the objects that a job's pods use (claims, Secrets, ConfigMaps, service accounts) and that do not exist."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.base.errors import Problem
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.manifest.local_images import VOLUMES
from tarragon.client.errors import ApiError, NotFound
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS, SERVICE_ACCOUNTS
from tarragon.kube.meta import Json, JsonObject, Key, PartialObjectMetadata, Resource

_OF_VOLUMES: Mapping[str, tuple[Resource[PartialObjectMetadata], str]] = {
    "persistentVolumeClaim": (PERSISTENT_VOLUME_CLAIMS, "claimName"),
    "secret": (SECRETS, "secretName"),
    "configMap": (CONFIG_MAPS, "name"),
}
_OF_VARIABLES: Mapping[str, tuple[Resource[PartialObjectMetadata], str]] = {
    "secretKeyRef": (SECRETS, "name"),
    "configMapKeyRef": (CONFIG_MAPS, "name"),
    "secretRef": (SECRETS, "name"),
    "configMapRef": (CONFIG_MAPS, "name"),
}
_OF_SOURCES: Mapping[str, tuple[Resource[PartialObjectMetadata], str]] = {
    "secret": (SECRETS, "name"),
    "configMap": (CONFIG_MAPS, "name"),
}

_WAITS = "pods that use it do not start until it exists"
_REFUSED = "no pod can be created until it exists"
_CREATION = MappingProxyType(
    {
        "secret": "kubectl -n {namespace} create secret generic {name} --from-literal KEY=VALUE",
        "configmap": "kubectl -n {namespace} create configmap {name} --from-file FILE",
        "persistentvolumeclaim": "kubectl -n {namespace} apply -f FILE, which has a PersistentVolumeClaim {name}",
        "serviceaccount": "kubectl -n {namespace} create serviceaccount {name}",
    }
)

_CREATED_BY_CLUSTER = frozenset({(SERVICE_ACCOUNTS.kind, "default"), (CONFIG_MAPS.kind, "kube-root-ca.crt")})
"""Objects that the cluster creates in every new namespace."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """An object that a pod uses. `path` is where the manifest names it first."""

    resource: Resource[PartialObjectMetadata]
    name: str
    path: str

    @property
    def id(self) -> tuple[str, str]:
        return self.resource.kind, self.name


def creation_command(kind: str, namespace: str, name: str) -> str:
    """Returns the command that creates an object of one of the kinds that pods use."""
    return _CREATION[kind.lower()].format(namespace=namespace, name=name)


def problem_of_manifest(need: Dependency, namespace: str) -> Problem:
    return Problem(need.path, _missing(need, namespace), f"{_effect(need)}: create it, or add it to FILE")


def problem_of_script(need: Dependency, namespace: str) -> Problem:
    """Names no path, since the manifest of a script is not seen, and no FILE, to which nothing can be added."""
    command = creation_command(need.resource.kind, namespace, need.name)
    return Problem("", _missing(need, namespace), f"{_effect(need)}; create it: {command}")


async def missing_dependencies(
    reader: ClusterReader,
    job: JsonObject,
    brought: Collection[tuple[str, str]],
    problem_of: Callable[[Dependency, str], Problem] = problem_of_manifest,
) -> list[Problem]:
    """Returns a Problem for each missing object, worded by `problem_of`.

    `brought` are the objects in FILE. Objects that the user may not read count as existing.
    """
    namespace = str(job["metadata"]["namespace"])
    first: dict[tuple[str, str], Dependency] = {}
    for need in dependencies_of(job):
        if need.id not in brought and need.id not in _CREATED_BY_CLUSTER:
            first.setdefault(need.id, need)
    keys = ((need.resource, Key(namespace, need.name)) for need in first.values())
    found = await asyncio.gather(*(may_exist(reader, *each) for each in keys))
    return [problem_of(need, namespace) for need, is_there in zip(first.values(), found, strict=True) if not is_there]


def dependencies_of(job: JsonObject) -> Iterator[Dependency]:
    """Yields the objects that the pods use, without optional ones and without volumes that --volume maps to folders."""
    for path, template in pod_templates(job):
        spec = template["spec"]
        account = spec.get("serviceAccountName")
        if isinstance(account, str) and account:
            yield Dependency(SERVICE_ACCOUNTS, account, f"{path}.serviceAccountName")
        yield from _of_volumes(spec, _mapped_volumes(template), path)
        for field in ("initContainers", "containers"):
            for where, container in _each(spec, field, path):
                yield from _of_variables(container, where)


def _of_volumes(spec: JsonObject, mapped: Collection[str], path: str) -> Iterator[Dependency]:
    for where, volume in _each(spec, "volumes", path):
        if volume.get("name") not in mapped:
            yield from _named(volume, _OF_VOLUMES, where)
            for inner, source in _each(volume.get("projected"), "sources", f"{where}.projected"):
                yield from _named(source, _OF_SOURCES, inner)


def _of_variables(container: JsonObject, path: str) -> Iterator[Dependency]:
    for where, variable in _each(container, "env", path):
        yield from _named(variable.get("valueFrom"), _OF_VARIABLES, f"{where}.valueFrom")
    for where, source in _each(container, "envFrom", path):
        yield from _named(source, _OF_VARIABLES, where)


async def may_exist(reader: ClusterReader, resource: Resource[PartialObjectMetadata], key: Key) -> bool:
    """Whether the object exists, or may not be read."""
    try:
        await reader.get(resource, key)
    except NotFound:
        return False
    except ApiError:
        return True
    return True


def _missing(need: Dependency, namespace: str) -> str:
    return f"{need.resource.kind} {need.name} not found in namespace {namespace}"


def _effect(need: Dependency) -> str:
    return _REFUSED if need.resource is SERVICE_ACCOUNTS else _WAITS


def _named(
    body: Json, kinds: Mapping[str, tuple[Resource[PartialObjectMetadata], str]], path: str
) -> Iterator[Dependency]:
    for field, (resource, named) in kinds.items():
        found = body.get(field) if isinstance(body, Mapping) else None
        name = found.get(named) if isinstance(found, Mapping) and found.get("optional") is not True else None
        if isinstance(name, str) and name:
            yield Dependency(resource, name, f"{path}.{field}.{named}")


def _each(body: Json, field: str, path: str) -> Iterator[tuple[str, JsonObject]]:
    found = body.get(field) if isinstance(body, Mapping) else None
    for number, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, Mapping):
            yield f"{path}.{field}[{number}]", item


def _mapped_volumes(template: JsonObject) -> Collection[str]:
    """Returns the volumes that --volume maps to folders."""
    annotations: Json = (template.get("metadata") or {}).get("annotations") or {}
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        return set(json.loads(annotations.get(VOLUMES, "{}")))
    return ()
