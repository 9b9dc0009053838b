"""Recognises the API generation of a job. It is recorded in an annotation and not recognised again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Dialect, Framework, Manifest
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.meta import Json, JsonObject

LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
FIELD_MANAGER_PREFIX = "tarragon"
"""The prefix of Tarragon's field managers."""


def dialect_of(framework: Framework, manifest: Manifest) -> Dialect | Problem:
    """The dialect of a manifest: by its annotation, else by its structure, else by its original version.

    The fallback of the framework applies if none of these decides.
    """
    metadata = _map(manifest.get("metadata"))
    annotation = _map(metadata.get("annotations")).get(GENERATION_ANNOTATION)
    if annotation is not None:
        return _annotated(framework, annotation)
    fallback = framework.dialects[-1]
    candidates = [dialect for dialect in framework.dialects if dialect.matches(manifest)]
    if len(candidates) == 1:
        return candidates[0]
    origin = written_version(framework, manifest)
    of_origin = [dialect for dialect in candidates if dialect.api_version == origin]
    return next(iter(of_origin), fallback if fallback in candidates or not candidates else candidates[0])


def _annotated(framework: Framework, annotation: Json) -> Dialect | Problem:
    for dialect in framework.dialects:
        if dialect.name == annotation:
            return dialect
    return Problem(
        f'metadata.annotations["{GENERATION_ANNOTATION}"]',
        f"this version of Tarragon does not know the generation {annotation!r}",
        "use the version of Tarragon that wrote it, or remove the annotation to have the job recognised again",
    )


def is_recorded(manifest: Manifest) -> bool:
    """Whether the generation was recognised before."""
    return _map(_map(manifest.get("metadata")).get("annotations")).get(GENERATION_ANNOTATION) is not None


def written_version(framework: Framework, manifest: Manifest) -> Json:
    """The API version that the user wrote. The server returns a job in any version, so `apiVersion` is not reliable."""
    stated, metadata = manifest.get("apiVersion"), _map(manifest.get("metadata"))
    if stated != framework.resource.api_version:
        return stated
    return _last_applied(metadata) or _first_written(metadata) or stated


def _last_applied(metadata: JsonObject) -> Json:
    text = _map(metadata.get("annotations")).get(LAST_APPLIED_ANNOTATION)
    try:
        return _map(json.loads(text)).get("apiVersion") if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _first_written(metadata: JsonObject) -> Json:
    """The API version of the first field manager of spec that is not Tarragon. The times sort correctly as text."""
    writers = sorted(_writers_of_spec(metadata.get("managedFields")), key=lambda entry: str(entry.get("time", "")))
    return next((entry.get("apiVersion") for entry in writers), None)


def _writers_of_spec(entries: Json) -> Iterator[JsonObject]:
    for entry in entries if isinstance(entries, Sequence) and not isinstance(entries, str) else ():
        fields = _map(entry)
        is_ours = str(fields.get("manager", "")).startswith(FIELD_MANAGER_PREFIX)
        if not is_ours and "f:spec" in _map(fields.get("fieldsV1")):
            yield fields


def _map(found: Json) -> JsonObject:
    return found if isinstance(found, Mapping) else {}
