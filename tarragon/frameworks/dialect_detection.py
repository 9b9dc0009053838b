"""Recognises the API generation of a job. It is recorded in the job and not recognised again.

The record is in the status; where the stored job would be taken for one of another generation without it, an annotation
has it, too, as a status does not survive a restore from a backup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tarragon.base.errors import Problem
from tarragon.frameworks.plugin import Dialect, Framework, Manifest
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.codec import decode
from tarragon.kube.meta import CustomObject, Json, JsonObject, PartialObject

LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
FIELD_MANAGER_PREFIX = "tarragon"
"""The prefix of Tarragon's field managers."""


def dialect_of(framework: Framework, manifest: Manifest) -> Dialect | Problem:
    """The dialect of a manifest: as recorded, else by its structure, else by its original version.

    The fallback of the framework applies if none of these decides.
    """
    annotation = _annotated_generation(manifest)
    if annotation is not None:
        return _named(framework, annotation, f'metadata.annotations["{GENERATION_ANNOTATION}"]')
    recorded = recorded_in_status(manifest.get("status"))
    if recorded is not None:
        return _named(framework, recorded, "status.tarragon.generation")
    fallback = framework.dialects[-1]
    candidates = [dialect for dialect in framework.dialects if dialect.matches(manifest)]
    if len(candidates) == 1:
        return candidates[0]
    origin = written_version(framework, manifest)
    of_origin = [dialect for dialect in candidates if dialect.api_version == origin]
    return next(iter(of_origin), fallback if fallback in candidates or not candidates else candidates[0])


def _named(framework: Framework, name: Json, path: str) -> Dialect | Problem:
    for dialect in framework.dialects:
        if dialect.name == name:
            return dialect
    return Problem(
        path,
        f"this version of Tarragon does not know the generation {name!r}",
        "use the version of Tarragon that wrote it, or remove the field to have the job recognised again",
    )


def is_recorded(manifest: Manifest) -> bool:
    """Whether the generation was recognised before."""
    return _annotated_generation(manifest) is not None or recorded_in_status(manifest.get("status")) is not None


def tells_generation(framework: Framework, manifest: Manifest, dialect: Dialect) -> bool:
    """Whether the spec alone tells that the job is of this dialect: without a record of Tarragon's, and without what
    the API server knows of the version in which it was written, and both with and without what kubectl knows of that.
    """
    applied = _map(_map(manifest.get("metadata")).get("annotations")).get(LAST_APPLIED_ANNOTATION)
    plain: dict[str, Json] = {
        "apiVersion": framework.resource.api_version,
        "kind": manifest.get("kind"),
        "metadata": {},
        "spec": manifest.get("spec"),
    }
    if dialect_of(framework, plain) is not dialect:
        return False
    with_annotation = {**plain, "metadata": {"annotations": {LAST_APPLIED_ANNOTATION: applied}}}
    return applied is None or dialect_of(framework, with_annotation) is dialect


def with_applied_version_only(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations, of which that of `kubectl apply` is reduced to the version in which the job was applied."""
    applied = annotations.get(LAST_APPLIED_ANNOTATION)
    if applied is None:
        return dict(annotations)
    version = _applied_version(applied)
    kept = {name: value for name, value in annotations.items() if name != LAST_APPLIED_ANNOTATION}
    return kept | ({LAST_APPLIED_ANNOTATION: f'{{"apiVersion":{json.dumps(version)}}}'} if version else {})


def recorded_generation(found: CustomObject) -> str | None:
    """The generation on record in the annotations or the status of a stored job; None if there is none."""
    annotation = found.metadata.annotations.get(GENERATION_ANNOTATION)
    if annotation is not None:
        return annotation
    try:
        status: _Status | None = decode(bytes(found.raw_status), _Status | None)  # type: ignore[arg-type]
    except msgspec.DecodeError:
        return None
    return status.tarragon.generation or None if status is not None else None


def recorded_in_status(status: Json) -> str | None:
    """The generation in a job's status; None if there is none."""
    found = _map(_map(status).get("tarragon")).get("generation")
    return found if isinstance(found, str) and found else None


class _TarragonStatus(PartialObject, frozen=True):
    generation: str = ""


class _Status(PartialObject, frozen=True):
    tarragon: _TarragonStatus = _TarragonStatus()


def _annotated_generation(manifest: Manifest) -> Json:
    return _map(_map(manifest.get("metadata")).get("annotations")).get(GENERATION_ANNOTATION)


def written_version(framework: Framework, manifest: Manifest) -> Json:
    """The API version that the user wrote. The server returns a job in any version, so `apiVersion` is not reliable."""
    stated, metadata = manifest.get("apiVersion"), _map(manifest.get("metadata"))
    if stated != framework.resource.api_version:
        return stated
    return _last_applied(metadata) or _first_written(metadata) or stated


def _last_applied(metadata: JsonObject) -> Json:
    text = _map(metadata.get("annotations")).get(LAST_APPLIED_ANNOTATION)
    return _applied_version(text) if isinstance(text, str) else None


def _applied_version(text: str) -> str | None:
    try:
        return decode(text.encode(), _Applied).api_version or None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


class _Applied(PartialObject, frozen=True):
    api_version: str = ""


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
