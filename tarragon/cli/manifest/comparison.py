"""An object of a FILE beside the one of the cluster."""

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
"""Annotations that say from where a job was submitted."""

_FILLED_IN = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink"})
_SECRET = ("data", "stringData")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`before` is None of what is not there. `notes` are for stderr."""

    label: str
    before: JsonObject | None
    after: JsonObject
    notes: Sequence[str] = ()
    is_other: bool = False
    """It differs in what the two texts don't show."""

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
    live = await _found(looker, resource, Key(loaded.namespace, name)) if name else None
    if live is None:
        return Compared(label=label, before=None, after=new, notes=[f"{label} is new"])
    live = without_annotations(live, OF_THIS_MACHINE)
    found = difference(loaded.framework, live, new)
    if found is None:
        note = f"{label} of the cluster can't be read as a job: compared as it is written"
        return Compared(label=label, before=_bare(live), after=new, notes=[note])
    return Compared(
        label=label,
        before=found.before,
        after=found.after,
        notes=list(_notes(label, found)),
        is_other=not found.is_none,
    )


def _notes(label: str, found: Difference) -> Iterator[str]:
    if found.live_generation != found.generation:
        yield f"{label} is a job of {found.live_generation} there, and of {found.generation} here"
    for problem in found.untold:
        yield f"differs: {problem}"
    yield from (f"there: {doubt}" for doubt in found.doubts)


async def companion(looker: Looker, resource: Resource[CustomObject], body: JsonObject) -> Compared:
    """What is merged into the one that is there, as `submit` does."""
    key = Key(body["metadata"].get("namespace", "") if resource.namespaced else "", body["metadata"]["name"])
    label = f"{resource.kind.lower()}/{key.name}"
    live = await _found(looker, resource, key)
    if live is None:
        return Compared(label=label, before=None, after=_shown(_bare(body), _bare(body)), notes=[f"{label} is new"])
    before = _bare(live)
    after = _bare(merged(before, _encoded(body)))
    return Compared(label=label, before=_shown(before, before), after=_shown(after, before))


def _encoded(body: JsonObject) -> JsonObject:
    """A secret as a server keeps it: texts that were written plainly go to the others."""
    plain = body.get("stringData")
    if body.get("kind") != "Secret" or not isinstance(plain, Mapping):
        return body
    coded = {name: b64encode(str(text).encode()).decode() for name, text in plain.items()}
    rest = {name: value for name, value in body.items() if name != "stringData"}
    return {**rest, "data": {**(body.get("data") or {}), **coded}}


def _bare(body: JsonObject) -> JsonObject:
    """Without what a server fills in, and without what kubectl applied last: there all of a secret stands again."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in {*_FILLED_IN, "annotations"}}
    written = body["metadata"].get("annotations") or {}
    annotations = {name: value for name, value in written.items() if name != LAST_APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}


def hidden(body: JsonObject) -> JsonObject:
    """As a screen may have it: without the values of a secret, also those that kubectl has applied last."""
    metadata = dict(body["metadata"])
    kept = {name: text for name, text in (metadata.pop("annotations", None) or {}).items() if name != LAST_APPLIED}
    if kept:
        metadata["annotations"] = kept
    metadata.pop("managedFields", None)
    return _shown({**body, "metadata": metadata}, body)


def _shown(body: JsonObject, before: JsonObject) -> JsonObject:
    """Of a secret only which of its values differ from those before."""
    if body.get("kind") != "Secret":
        return body
    return {name: _hidden(value, before.get(name)) if name in _SECRET else value for name, value in body.items()}


def _hidden(value: Json, before: Json) -> Json:
    if not isinstance(value, Mapping):
        return value
    known = before if isinstance(before, Mapping) else {}
    return {name: "***" if name in known and known[name] == text else "*** (changed)" for name, text in value.items()}


async def _found(looker: Looker, resource: Resource[CustomObject], key: Key) -> JsonObject | None:
    try:
        return await looker.get(resource.reading(dict), key)
    except NotFound:
        return None
