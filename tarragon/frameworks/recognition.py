"""Which generation of its API a job is of: recognised once, then marked on it for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Dialect, Framework, Manifest
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.meta import Json, JsonObject

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OURSELVES = "tarragon"
"""The field manager of our own writes, and the beginning of its other names."""


def dialect_of(framework: Framework, manifest: Manifest) -> Dialect | Problem:
    """By the mark; else by shape; where shapes are equal by the version it was first written in; else the fallback."""
    metadata = _map(manifest.get("metadata"))
    mark = _map(metadata.get("annotations")).get(GENERATION_ANNOTATION)
    if mark is not None:
        return _marked(framework, mark)
    fallback = framework.dialects[-1]
    candidates = [dialect for dialect in framework.dialects if dialect.recognise(manifest)]
    if len(candidates) == 1:
        return candidates[0]
    origin = _origin(framework, manifest, metadata)
    written = [dialect for dialect in candidates if dialect.api_version == origin]
    return next(iter(written), fallback if fallback in candidates or not candidates else candidates[0])


def _marked(framework: Framework, mark: Json) -> Dialect | Problem:
    for dialect in framework.dialects:
        if dialect.name == mark:
            return dialect
    return Problem(
        f'metadata.annotations["{GENERATION_ANNOTATION}"]',
        f"{mark!r} is no generation that this version of Tarragon knows",
        "use the version of Tarragon that wrote it, or remove the annotation to have the job recognised anew",
    )


def _origin(framework: Framework, manifest: Manifest, metadata: JsonObject) -> Json:
    """The API version its user wrote. The API server serves a job in any version, so the object's own says little."""
    stated = manifest.get("apiVersion")
    if stated != framework.resource.api_version:
        return stated
    return _last_applied(metadata) or _first_written(metadata) or stated


def _last_applied(metadata: JsonObject) -> Json:
    text = _map(metadata.get("annotations")).get(LAST_APPLIED)
    try:
        return _map(json.loads(text)).get("apiVersion") if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _first_written(metadata: JsonObject) -> Json:
    """Of the oldest writer of spec that was not ourselves. Times as text sort as times."""
    writers = sorted(_writers_of_spec(metadata.get("managedFields")), key=lambda entry: str(entry.get("time", "")))
    return next((entry.get("apiVersion") for entry in writers), None)


def _writers_of_spec(entries: Json) -> Iterator[JsonObject]:
    for entry in entries if isinstance(entries, Sequence) and not isinstance(entries, str) else ():
        fields = _map(entry)
        is_ours = str(fields.get("manager", "")).startswith(OURSELVES)
        if not is_ours and "f:spec" in _map(fields.get("fieldsV1")):
            yield fields


def _map(found: Json) -> JsonObject:
    return found if isinstance(found, Mapping) else {}
