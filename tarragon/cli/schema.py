"""What `-o json` and `-o yaml` say where no object of Kubernetes is asked for: docs/reference/cli-output.md.

A change here is one that scripts meet: fields may come, none may go or change its meaning within a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarragon.cli.configkeys import Setting
    from tarragon.kube.meta import Json, JsonObject

API_VERSION = "cli.tarragon.dev/v1"


def headed(kind: str, fields: Mapping[str, Json]) -> JsonObject:
    """Without what is not known: a field that is there has a value."""
    known = {name: value for name, value in fields.items() if value is not None}
    return {"apiVersion": API_VERSION, "kind": kind, **known}


def config(path: Path, found: Iterable[Setting]) -> JsonObject:
    settings = [{"key": each.key, "value": each.value, "origin": each.origin} for each in found]
    return headed("Config", {"path": str(path), "settings": settings})
