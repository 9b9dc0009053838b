"""Warnings about the parts of a CustomResourceDefinition that are stored, but have no effect here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

RULES = "x-kubernetes-validations"


def unenforced_warnings(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """One warning for each version whose schema has CEL rules."""
    versions = (definition.get("spec") or {}).get("versions") or ()
    return tuple(
        f"spec.versions[{index}].schema: {RULES} is stored, but not enforced: this server does not evaluate CEL"
        for index, version in enumerate(versions)
        if any(_rules((version.get("schema") or {}).get("openAPIV3Schema")))
    )


def _rules(schema: Any) -> Iterator[Any]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get(RULES), list):
            yield from schema[RULES]
        for child in schema.values():
            yield from _rules(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from _rules(child)
