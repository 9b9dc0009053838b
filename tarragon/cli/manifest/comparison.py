"""Compares the objects of a FILE with those of the cluster."""

from __future__ import annotations

import difflib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.cli.jobview.target import Looker
from tarragon.cli.manifest.loading import Loaded
from tarragon.cli.manifest.local_images import ENVIRONMENTS, VOLUMES, WORKDIR
from tarragon.cli.manifest.overrides import without_annotations
from tarragon.cli.options.formats import yaml_text
from tarragon.client.errors import NotFound
from tarragon.frameworks.recognition import LAST_APPLIED
from tarragon.kube.meta import CustomObject, Json, JsonObject, Key, Resource
from tarragon.kube.patch import merged
from tarragon.plan.input.difference import Difference, difference

OF_THIS_MACHINE = frozenset({WORKDIR, VOLUMES, ENVIRONMENTS})
"""Annotations that describe the machine from which a job was submitted."""

_FILLED_IN = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink"})
_SECRET = ("data", "stringData")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """An object in the cluster and in FILE. `before` is None if the cluster lacks it. `notes` are for stderr."""

    label: str
    before: JsonObject | None
    after: JsonObject
    notes: Sequence[str] = ()
    is_other: bool = False
    """Whether the objects differ in a way that the two texts don't show."""

    @property
    def differs(self) -> bool:
        return self.is_other or self.before != self.after

    def lines(self, file: str) -> Iterator[str]:
        old = [] if self.before is None else yaml_text(self.before).splitlines()
        new = yaml_text(self.after).splitlines()
        yield from difflib.unified_diff(old, new, f"cluster/{self.label}", f"{file}/{self.label}", lineterm="")


async def job(looker: Looker, loaded: Loaded) -> Compared:
    resource, new = loaded.framework.resource, without_annotations(loaded.job, OF_THIS_MACHINE)
    name = str(new["metadata"].get("name", ""))
    label = f"{resource.kind.lower()}/{name or new['metadata'].get('generateName')}"
    live = await _get(looker, resource, Key(loaded.namespace, name)) if name else None
    if live is None:
        return Compared(label=label, before=None, after=new, notes=[f"{label} is new"])
    live = without_annotations(live, OF_THIS_MACHINE)
    found = difference(loaded.framework, live, new)
    if found is None:
        note = f"{label} in the cluster can't be read as a job; comparing the plain manifests"
        return Compared(label=label, before=_without_server_fields(live), after=new, notes=[note])
    return Compared(
        label=label,
        before=found.before,
        after=found.after,
        notes=list(_notes(label, found)),
        is_other=not found.is_none,
    )


def _notes(label: str, found: Difference) -> Iterator[str]:
    if found.live_generation != found.generation:
        yield f"{label} has API {found.live_generation} in the cluster and {found.generation} in FILE"
    for problem in found.untold:
        yield f"differs: {problem}"
    yield from (f"in the cluster: {doubt}" for doubt in found.doubts)


async def companion(looker: Looker, resource: Resource[CustomObject], body: JsonObject) -> Compared:
    """Compares an object that is not a job with the result of merging it into the cluster's, as `submit` does."""
    key = Key(body["metadata"].get("namespace", "") if resource.namespaced else "", body["metadata"]["name"])
    label = f"{resource.kind.lower()}/{key.name}"
    live = await _get(looker, resource, key)
    if live is None:
        return Compared(
            label=label,
            before=None,
            after=_with_secrets_hidden(_without_server_fields(body), _without_server_fields(body)),
            notes=[f"{label} is new"],
        )
    before = _without_server_fields(live)
    after = _without_server_fields(merged(before, _encoded(body)))
    return Compared(label=label, before=_with_secrets_hidden(before, before), after=_with_secrets_hidden(after, before))


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
    annotations = {name: value for name, value in written.items() if name != LAST_APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}


def hidden(body: JsonObject) -> JsonObject:
    """Hides the values of a Secret, also in kubectl's last-applied annotation, so that the object may be printed."""
    metadata = dict(body["metadata"])
    kept = {name: text for name, text in (metadata.pop("annotations", None) or {}).items() if name != LAST_APPLIED}
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


async def _get(looker: Looker, resource: Resource[CustomObject], key: Key) -> JsonObject | None:
    try:
        return await looker.get(resource.reading(dict), key)
    except NotFound:
        return None
