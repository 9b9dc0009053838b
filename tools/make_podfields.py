#!/usr/bin/env python3
"""Write tarragon/kube/podfields.py: the fields of a pod template and their types, as Kubernetes itself defines them.

They come from the package kubernetes-validate, a build-time dependency. Run it again for a newer Kubernetes:

    python tools/make_podfields.py [--check]
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate

# The newest one in the package: fields are added to pods, never taken away.
VERSION = "1.37.0"
ROOT = "PodTemplateSpec"
TARGET = Path(__file__).parent.parent / "tarragon" / "kube" / "podfields.py"
SPECIAL = {"Quantity": "quantity", "IntOrString": "intstr", "Time": "time", "FieldsV1": "any"}
HEAD = f'''"""The fields of a pod template in Kubernetes {VERSION}. Written by tools/make_podfields.py; do not edit.

A paragraph is a type and its fields, `name:type`; `!` marks one that is required, `[` a list of, `{{` a map of text to.
"""

from __future__ import annotations

FIELDS = """
'''


def main(arguments: list[str]) -> int:
    text = HEAD + "\n".join(lines(definitions())) + '\n"""\n'
    if "--check" in arguments:
        if TARGET.read_text() != text:
            print(f"{TARGET} is out of date; run python tools/make_podfields.py")
            return 1
        return 0
    TARGET.write_text(text)
    print(f"{TARGET}: {len(text):,} bytes")
    return 0


def definitions() -> dict[str, dict[str, Any]]:
    """By short name. The kinds of a pod all live in core/v1 and meta/v1, where short names are unique."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{VERSION}-local"
    found = json.loads((folder / "_definitions.json").read_text())["$defs"]
    homes = (
        "io.k8s.api.core.v1.",
        "io.k8s.apimachinery.pkg.apis.meta.v1.",
        "io.k8s.apimachinery.pkg.api.resource.",
        "io.k8s.apimachinery.pkg.util.intstr.",
    )
    return {name.rpartition(".")[2]: definition for name, definition in found.items() if name.startswith(homes)}


def lines(known: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Every type that can be reached from the root, in alphabetical order."""
    reached: dict[str, str] = {}
    waiting = [ROOT]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        required = known[name].get("required", [])
        fields = {field: spelled(kind) for field, kind in known[name]["properties"].items()}
        reached[name] = " ".join(
            f"{field}{'!' if field in required else ''}:{kind}" for field, kind in sorted(fields.items())
        )
        waiting += [kind.lstrip("[{") for kind in fields.values() if kind.lstrip("[{")[0].isupper()]
    for name in sorted(reached):
        yield textwrap.fill(f"{name} {reached[name]}", 118, subsequent_indent="  ", break_on_hyphens=False)


def spelled(kind: dict[str, Any]) -> str:
    if "$ref" in kind:
        name = str(kind["$ref"]).rpartition("/")[2].rpartition(".")[2]
        return SPECIAL.get(name, name)
    types = kind.get("type", "object")
    name = types if isinstance(types, str) else next(word for word in types if word != "null")
    if name == "array":
        return "[" + spelled(kind["items"])
    if name == "object":
        inner = kind.get("additionalProperties")
        return "{" + spelled(inner) if isinstance(inner, dict) else "any"
    return str(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
