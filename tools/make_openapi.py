#!/usr/bin/env python3
"""Write tarragon/localcluster/kinds/openapi.json.gz: Kubernetes' own schemas of the kinds that the embedded API serves.

They come from the package kubernetes-validate, a build-time dependency of 100 MB. The file has a few dozen kB: the
served kinds in one version of Kubernetes, and the definitions that they refer to. Run this again when the kinds change:

    python tools/make_openapi.py [--check]
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate

from tarragon.localcluster.kinds.registry import KindRegistry

VERSION = "1.37.0"
TARGET = Path(__file__).parent.parent / "tarragon" / "localcluster" / "kinds" / "openapi.json.gz"
ALWAYS = ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",)
"""Always included, because custom kinds refer to it."""

FROM_ELSEWHERE = frozenset({"metrics.k8s.io"})
"""Groups that are not part of Kubernetes itself."""

REFERENCE = "#/components/schemas/"

# Types that the package's JSON Schema defines differently from the OpenAPI of a real API server.
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}


def main(arguments: list[str]) -> int:
    data = encoded(document(source(), served()))
    if "--check" in arguments:
        if gzip.decompress(TARGET.read_bytes()) != data:
            print(f"{TARGET} is out of date; run python tools/make_openapi.py")
            return 1
        return 0
    TARGET.write_bytes(gzip.compress(data, mtime=0))
    print(f"{TARGET}: {len(data):,} bytes, {TARGET.stat().st_size:,} compressed")
    return 0


def source() -> dict[str, Any]:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{VERSION}-local"
    definitions: dict[str, Any] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return definitions


def served() -> set[tuple[str, str, str]]:
    """The (group, version, kind) of every built-in kind that is part of Kubernetes."""
    kinds = {(kind.group, kind.version, kind.kind) for kind in KindRegistry() if not kind.is_custom}
    return {kind for kind in kinds if kind[0] not in FROM_ELSEWHERE}


def document(definitions: dict[str, Any], kinds: set[tuple[str, str, str]]) -> dict[str, Any]:
    """The definitions of the kinds and of everything that they refer to."""
    roots = {gvk: name for name, schema in definitions.items() for gvk in kinds_of(schema) if gvk in kinds}
    if missing := kinds - roots.keys():
        raise SystemExit(f"Kubernetes {VERSION} does not define {', '.join(map(str, sorted(missing)))}")
    wanted = closure(definitions, [*roots.values(), *ALWAYS])
    return {"kubernetes": VERSION, "schemas": {name: converted(name, definitions[name]) for name in sorted(wanted)}}


def kinds_of(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for gvk in schema.get("x-kubernetes-group-version-kind", []):
        yield gvk["group"], gvk["version"], gvk["kind"]


def closure(definitions: dict[str, Any], roots: Iterable[str]) -> set[str]:
    found: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += references(definitions[name])
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rpartition("/")[2]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def converted(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema as an API server publishes it: types without null, and references without siblings."""
    if name in SPECIAL:
        return {**({"description": schema["description"]} if "description" in schema else {}), **SPECIAL[name]}
    result = {word: value for word, value in schema.items() if word not in {"enum", "properties", "items", "type"}}
    if "type" in schema:
        result["type"] = plain_type(schema["type"])
    if "enum" in schema and not is_type_meta(schema):
        result["enum"] = [value for value in schema["enum"] if value is not None]
    if "items" in schema:
        result["items"] = converted("", schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = converted("", schema["additionalProperties"])
    if "properties" in schema:
        result["properties"] = {field: converted("", value) for field, value in schema["properties"].items()}
    if "$ref" in schema:
        reference = {"$ref": REFERENCE + result.pop("$ref").rpartition("/")[2]}
        return {"allOf": [reference], **result} if result else reference
    return result


def plain_type(value: str | list[str]) -> str:
    return value if isinstance(value, str) else next(each for each in value if each != "null")


def is_type_meta(schema: dict[str, Any]) -> bool:
    """Whether the schema is of `apiVersion` or `kind`, which only the package restricts to their values."""
    return str(schema.get("description", "")).startswith(("APIVersion defines", "Kind is a string value"))


def encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
