"""OpenAPI v3 documents, one per group-version. kubectl needs them for `apply`, `explain` and server-side validation."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.kinds.registry import KindRegistry, ServedKind

REFERENCE = "#/components/schemas/"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_POD = "io.k8s.api.core.v1.Pod"


@cache
def built_in_schemas() -> Mapping[str, Any]:
    """Kubernetes' own schemas by name, with merge keys and list-map keys as `x-kubernetes-…` extensions.

    tools/make_openapi.py generates them. They are shared and must not be changed.
    """
    data = files("tarragon.localcluster.kinds").joinpath("openapi.json.gz").read_bytes()
    schemas: Mapping[str, Any] = decode(gzip.decompress(data), dict)["schemas"]
    return schemas


@cache
def built_in_names() -> Mapping[tuple[str, str, str], str]:
    """The name of the schema of each (group, version, kind)."""
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in built_in_schemas().items()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
    }


@dataclass(frozen=True, slots=True)
class OpenApiDocument:
    """One encoded document; the hash changes when it does, and is part of the URL that the index names."""

    data: bytes
    hash: str


class OpenApi:
    """The documents of a registry's kinds. Each is built on its first request, and again when its kinds change.

    They are built in a thread: on a busy machine that takes too long to block the event loop.
    """

    def __init__(self, registry: KindRegistry) -> None:
        self._registry = registry
        self._documents: dict[tuple[str, str], tuple[Sequence[ServedKind], OpenApiDocument]] = {}

    async def index(self) -> dict[str, Any]:
        """The index of the documents and their URLs."""
        paths: dict[str, Any] = {}
        for group, version in by_group_version(self._registry):
            document = await self.document(group, version)
            if document is not None:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={document.hash}"}
        return {"paths": paths}

    async def document(self, group: str, version: str) -> OpenApiDocument | None:
        """None when nothing of the group-version is served."""
        kinds = by_group_version(self._registry).get((group, version))
        if kinds is None:
            self._documents.pop((group, version), None)
            return None
        cached = self._documents.get((group, version))
        if cached is None or list(cached[0]) != kinds:
            cached = kinds, await asyncio.to_thread(_encoded, kinds)
            self._documents[group, version] = cached
        return cached[1]


def by_group_version(kinds: Iterable[ServedKind]) -> dict[tuple[str, str], list[ServedKind]]:
    """Group kinds by group and version."""
    found: dict[tuple[str, str], list[ServedKind]] = {}
    for served in kinds:
        found.setdefault((served.group, served.version), []).append(served)
    return found


def _encoded(kinds: Sequence[ServedKind]) -> OpenApiDocument:
    data = encode(openapi_document(kinds))
    return OpenApiDocument(data, hashlib.sha256(data).hexdigest().upper())


def openapi_document(kinds: Sequence[ServedKind]) -> dict[str, Any]:
    """The document of the kinds of one group-version. Built-in schemas in it are shared and must not be changed."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for served in kinds:
        name, schema = _schema(served)
        schemas[name] = schema
        paths.update(_paths(served, name))
    for name in _referenced(schemas):
        schemas.setdefault(name, built_in_schemas()[name])
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _schema(served: ServedKind) -> tuple[str, Mapping[str, Any]]:
    """The name and schema of a kind: Kubernetes' own, or what its CustomResourceDefinition says."""
    name = built_in_names().get((served.group, served.version, served.kind))
    if name is not None and not served.is_custom:
        return name, built_in_schemas()[name]
    reversed_group = ".".join(reversed(served.group.split("."))) or "core"
    return f"{reversed_group}.{served.version}.{served.kind}", _custom_schema(served)


def _custom_schema(served: ServedKind) -> Mapping[str, Any]:
    schema = dict(served.openapi or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    described = built_in_schemas()[_POD]["properties"]  # in the words of all kinds
    schema["properties"] = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string", "description": described["apiVersion"]["description"]},
        "kind": {"type": "string", "description": described["kind"]["description"]},
        "metadata": {
            "allOf": [{"$ref": REFERENCE + OBJECT_META}],
            "description": described["metadata"]["description"],
        },
    }
    schema["x-kubernetes-group-version-kind"] = [_gvk(served)]
    return schema


def _referenced(schemas: Mapping[str, Any]) -> set[str]:
    """The names of all built-in schemas that these refer to, directly or not."""
    found: set[str] = set()
    pending: list[Any] = list(schemas.values())
    while pending:
        for name in _references(pending.pop()):
            if name not in found and name in built_in_schemas():
                found.add(name)
                pending.append(built_in_schemas()[name])
    return found


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(REFERENCE)
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


# ----------------------------------------------------------------------------------------------------------- paths


def _paths(served: ServedKind, schema: str) -> dict[str, Any]:
    """The operations of a kind, with what kubectl looks for: the kind, and that writes accept `fieldValidation`."""
    base = f"/apis/{served.group}/{served.version}" if served.group else f"/api/{served.version}"
    all_namespaces = f"{base}/{served.plural}"
    collection = f"{base}/namespaces/{{namespace}}/{served.plural}" if served.namespaced else all_namespaces
    scope = [_path_parameter("namespace")] if served.namespaced else []
    verbs = set(served.verbs)

    def operations(wanted: Mapping[str, str]) -> dict[str, Any]:
        return {method: _operation(served, verb, schema) for method, verb in wanted.items() if verb in verbs}

    paths = {
        collection: {**operations({"get": "list", "post": "create", "delete": "deletecollection"}), "parameters": scope}
    }
    if served.namespaced:
        paths[all_namespaces] = operations({"get": "list"})
    one = operations({"get": "get", "put": "update", "patch": "patch", "delete": "delete"})
    if one:
        paths[f"{collection}/{{name}}"] = {**one, "parameters": [*scope, _path_parameter("name")]}
    return paths


_OPENAPI_ACTIONS: Mapping[str, str] = {"create": "post", "update": "put"}
_QUERY: Mapping[str, Sequence[tuple[str, str]]] = {
    "get": (),
    "list": (
        ("labelSelector", "string"),
        ("fieldSelector", "string"),
        ("limit", "integer"),
        ("continue", "string"),
        ("resourceVersion", "string"),
        ("watch", "boolean"),
    ),
    "create": (("fieldValidation", "string"), ("dryRun", "string"), ("fieldManager", "string")),
    "update": (("fieldValidation", "string"), ("dryRun", "string"), ("fieldManager", "string")),
    "patch": (
        ("fieldValidation", "string"),
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("force", "boolean"),
    ),
    "delete": (("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("propagationPolicy", "string")),
    "deletecollection": (("labelSelector", "string"), ("fieldSelector", "string"), ("dryRun", "string")),
}


def _operation(served: ServedKind, verb: str, schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REFERENCE + schema}}}
    answers_object = verb in {"get", "create", "update", "patch"}
    return {
        "parameters": [{"name": name, "in": "query", "schema": {"type": kind}} for name, kind in _QUERY[verb]],
        **({"requestBody": {"content": _patch_content(served)}} if verb == "patch" else {}),
        "responses": {"200": {"description": "OK", **({"content": content} if answers_object else {})}},
        "x-kubernetes-action": _OPENAPI_ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": _gvk(served),
    }


def _patch_content(served: ServedKind) -> dict[str, Any]:
    """The media types of a PATCH. kubectl apply reads OpenAPI v3 only for kinds that list the strategic merge patch."""
    own = () if served.is_custom else ("application/strategic-merge-patch+json",)
    types = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml", *own)
    return {each: {"schema": {"type": "object"}} for each in types}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _gvk(served: ServedKind) -> dict[str, str]:
    return {"group": served.group, "version": served.version, "kind": served.kind}
