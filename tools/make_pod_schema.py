#!/usr/bin/env python3
"""Write tarragon/kube/pod_schema.py: the fields of a pod template and their types, from Kubernetes' own schema.

The schema is in the package kubernetes-validate, a build-time dependency. Run this again for a newer Kubernetes:

    python tools/make_pod_schema.py [--check]
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate

# The newest version in the package: fields of pods are added, but never removed.
VERSION = "1.37.0"
ROOT = "PodTemplateSpec"
TARGET = Path(__file__).parent.parent / "tarragon" / "kube" / "pod_schema.py"
SPECIAL = {"Quantity": "quantity", "IntOrString": "intstr", "Time": "time", "FieldsV1": "any"}
HEAD = f'''"""The fields of a pod template in Kubernetes {VERSION}. Written by tools/make_pod_schema.py; do not edit.

A paragraph has a type and its fields as `name:type`. `!` marks a required field, `[` a list, `{{` a map with text keys.
"""

from __future__ import annotations

FIELDS = """
'''


def main(arguments: list[str]) -> int:
    text = HEAD + "\n".join(lines(definitions())) + '\n"""\n'
    if "--check" in arguments:
        if TARGET.read_text() != text:
            print(f"{TARGET} is out of date; run python tools/make_pod_schema.py")
            return 1
        return 0
    TARGET.write_text(text)
    print(f"{TARGET}: {len(text):,} bytes")
    return 0


def definitions() -> dict[str, dict[str, Any]]:
    """The schemas of the types of a pod by short name, which is unique in core/v1 and meta/v1."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{VERSION}-local"
    found = json.loads((folder / "_definitions.json").read_text())["$defs"]
    prefixes = (
        "io.k8s.api.core.v1.",
        "io.k8s.apimachinery.pkg.apis.meta.v1.",
        "io.k8s.apimachinery.pkg.api.resource.",
        "io.k8s.apimachinery.pkg.util.intstr.",
    )
    return {name.rpartition(".")[2]: definition for name, definition in found.items() if name.startswith(prefixes)}


def lines(definitions_by_name: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A line for every type that can be reached from the root, in alphabetical order."""
    reached: dict[str, str] = {}
    pending = [ROOT]
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        required = definitions_by_name[name].get("required", [])
        fields = {field: type_name(kind) for field, kind in definitions_by_name[name]["properties"].items()}
        reached[name] = " ".join(
            f"{field}{'!' if field in required else ''}:{kind}" for field, kind in sorted(fields.items())
        )
        pending += [kind.lstrip("[{") for kind in fields.values() if kind.lstrip("[{")[0].isupper()]
    for name in sorted(reached):
        yield textwrap.fill(f"{name} {reached[name]}", 118, subsequent_indent="  ", break_on_hyphens=False)


def type_name(kind: dict[str, Any]) -> str:
    if "$ref" in kind:
        name = str(kind["$ref"]).rpartition("/")[2].rpartition(".")[2]
        return SPECIAL.get(name, name)
    types = kind.get("type", "object")
    name = types if isinstance(types, str) else next(word for word in types if word != "null")
    if name == "array":
        return "[" + type_name(kind["items"])
    if name == "object":
        inner = kind.get("additionalProperties")
        return "{" + type_name(inner) if isinstance(inner, dict) else "any"
    return str(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
