"""Compares the objects of a FILE with those of the cluster."""

from __future__ import annotations

import difflib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.local_images import ENVIRONMENTS, VOLUMES, WORKDIR
from tarragon.cli.manifest.overrides import without_template_annotations
from tarragon.cli.options.formats import yaml_text
from tarragon.client.errors import NotFound
from tarragon.frameworks.dialect_detection import LAST_APPLIED_ANNOTATION
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import CustomObject, Json, JsonObject, Key, Resource
from tarragon.plan.input.manifest_diff import ManifestDiff, diff_manifests

LOCAL_ANNOTATIONS = frozenset({WORKDIR, VOLUMES, ENVIRONMENTS})
"""Annotations that describe the machine from which a job was submitted."""

_FILLED_IN = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink"})
_SECRET = ("data", "stringData")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDiff:
    """An object in the cluster and in FILE. `before` is None if the cluster lacks it. `notes` are for stderr."""

    label: str
    before: JsonObject | None
    after: JsonObject
    notes: Sequence[str] = ()
    differs_otherwise: bool = False
    """Whether the objects differ in a way that the two texts don't show."""

    @property
    def differs(self) -> bool:
        return self.differs_otherwise or self.before != self.after

    def lines(self, file: str) -> Iterator[str]:
        old = [] if self.before is None else yaml_text(self.before).splitlines()
        new = yaml_text(self.after).splitlines()
        yield from difflib.unified_diff(old, new, f"cluster/{self.label}", f"{file}/{self.label}", lineterm="")


async def compare_job(reader: ClusterReader, loaded: LoadedJob) -> ObjectDiff:
    resource, new = loaded.framework.resource, without_template_annotations(loaded.job, LOCAL_ANNOTATIONS)
    name = str(new["metadata"].get("name", ""))
    label = f"{resource.kind.lower()}/{name or new['metadata'].get('generateName')}"
    live = await _get(reader, resource, Key(loaded.namespace, name)) if name else None
    if live is None:
        return ObjectDiff(label=label, before=None, after=_without_server_fields(new), notes=[f"{label} is new"])
    live = without_template_annotations(live, LOCAL_ANNOTATIONS)
    found = diff_manifests(loaded.framework, live, new)
    if found is None:
        note = f"{label} in the cluster can't be read as a job; comparing the plain manifests"
        return ObjectDiff(
            label=label, before=_without_server_fields(live), after=_without_server_fields(new), notes=[note]
        )
    return ObjectDiff(
        label=label,
        before=found.before,
        after=found.after,
        notes=list(_notes(label, found)),
        differs_otherwise=not found.is_empty,
    )


def _notes(label: str, found: ManifestDiff) -> Iterator[str]:
    if found.live_generation != found.generation:
        yield f"{label} has API {found.live_generation} in the cluster and {found.generation} in FILE"
    for problem in found.inexpressible:
        yield f"differs: {problem}"
    yield from (f"in the cluster: {doubt}" for doubt in found.live_only_warnings)


async def compare_object(reader: ClusterReader, resource: Resource[CustomObject], body: JsonObject) -> ObjectDiff:
    """Compares an object that is not a job with the result of merging it into the cluster's, as `submit` does."""
    key = Key(body["metadata"].get("namespace", "") if resource.namespaced else "", body["metadata"]["name"])
    label = f"{resource.kind.lower()}/{key.name}"
    live = await _get(reader, resource, key)
    if live is None:
        return ObjectDiff(
            label=label,
            before=None,
            after=_with_secrets_hidden(_without_server_fields(body), _without_server_fields(body)),
            notes=[f"{label} is new"],
        )
    before = _without_server_fields(live)
    after = _without_server_fields(apply_merge_patch(before, _encoded(body)))
    return ObjectDiff(
        label=label, before=_with_secrets_hidden(before, before), after=_with_secrets_hidden(after, before)
    )


def _encoded(body: JsonObject) -> JsonObject:
    """Returns a Secret as the API server stores it: stringData is encoded into data."""
    plain = body.get("stringData")
    if body.get("kind") != "Secret" or not isinstance(plain, Mapping):
        return body
    coded = {name: b64encode(str(text).encode()).decode() for name, text in plain.items()}
    rest = {name: value for name, value in body.items() if name != "stringData"}
    return {**rest, "data": {**(body.get("data") or {}), **coded}}


def _without_server_fields(body: JsonObject) -> JsonObject:
    """Removes the fields that a server sets, and kubectl's last-applied annotation, which repeats a Secret's values."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in {*_FILLED_IN, "annotations"}}
    written = body["metadata"].get("annotations") or {}
    annotations = {name: value for name, value in written.items() if name != LAST_APPLIED_ANNOTATION}
    if annotations:
        metadata["annotations"] = annotations
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}


def with_secrets_hidden(body: JsonObject) -> JsonObject:
    """Hides the values of a Secret, also in kubectl's last-applied annotation, so that the object may be printed."""
    metadata = dict(body["metadata"])
    kept = {
        name: text
        for name, text in (metadata.pop("annotations", None) or {}).items()
        if name != LAST_APPLIED_ANNOTATION
    }
    if kept:
        metadata["annotations"] = kept
    metadata.pop("managedFields", None)
    return _with_secrets_hidden({**body, "metadata": metadata}, body)


def _with_secrets_hidden(body: JsonObject, before: JsonObject) -> JsonObject:
    """Hides the values of a Secret and marks those that changed."""
    if body.get("kind") != "Secret":
        return body
    return {name: _hidden_values(value, before.get(name)) if name in _SECRET else value for name, value in body.items()}


def _hidden_values(value: Json, before: Json) -> Json:
    if not isinstance(value, Mapping):
        return value
    old = before if isinstance(before, Mapping) else {}
    return {name: "***" if name in old and old[name] == text else "*** (changed)" for name, text in value.items()}


async def _get(reader: ClusterReader, resource: Resource[CustomObject], key: Key) -> JsonObject | None:
    try:
        return await reader.get(resource.with_model(dict), key)
    except NotFound:
        return None
