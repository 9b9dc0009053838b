"""Normalizes two manifests of one generation for a diff, without differences in defaults and server fields."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.conversion.json_changes import diff
from tarragon.frameworks.kubeflow.conversion.kind_conversion import (
    NO_ANNOTATIONS,
    GenerationT,
    KindConversion,
    NormalizedSpec,
)
from tarragon.frameworks.manifest_metadata import annotations_of, in_order_of, with_annotations
from tarragon.frameworks.plugin import Manifest
from tarragon.kube.merge_patch import without_nulls
from tarragon.kube.meta import Json, JsonObject


def normalize_for_diff(
    kind: KindConversion[GenerationT], live: Manifest, new: Manifest, name: str
) -> tuple[Manifest, Manifest]:
    """Both manifests for a diff. If one omits a field that has its default in the other, both omit it."""
    generation = kind.generations[name]
    uid = (live.get("metadata") or {}).get("uid", "")
    after = kind.normalize(new["spec"], generation, NO_ANNOTATIONS)
    before = kind.with_spelling_of(kind.normalize(live["spec"], generation, NO_ANNOTATIONS), after)
    filled = [
        _filled(kind, found, generation, {**each, "metadata": {**(each.get("metadata") or {}), "uid": uid}})
        for found, each in ((before, live), (after, new))
    ]
    young = _whole(kind, new, _quiet(after, before, filled[0]), generation)
    return in_order_of(_whole(kind, live, _quiet(before, after, filled[1]), generation), young), young


def _whole(
    kind: KindConversion[GenerationT], found: JsonObject, spec: NormalizedSpec, generation: GenerationT
) -> JsonObject:
    """The whole manifest, without the annotations that keep fields of other generations."""
    fields = {
        "apiVersion": generation.api_version,
        "kind": generation.kind,
        "spec": kind.denormalize(spec, generation),
    }
    whole: JsonObject = without_nulls({**kind.as_manifest(found), **fields})
    extras = {each.extra_annotation for each in kind.generations.values()}
    kept = {name: text for name, text in annotations_of(whole).items() if name not in extras}
    return with_annotations(whole, kept)


def _filled(
    kind: KindConversion[GenerationT], found: NormalizedSpec, generation: GenerationT, whole: JsonObject
) -> NormalizedSpec:
    """The spec with all defaults filled in."""
    dialect = kind.dialects[generation.name]
    job = dialect.decode(whole).job
    if job is not None:
        spec = kind.denormalize(found, generation)
        found = kind.normalize({**spec, **dialect.default_fields(job, spec)}, generation, NO_ANNOTATIONS)
    return kind.with_defaults(found, generation)


def _quiet(value: Json, other: Json, full: Json) -> Json:
    """The value without fields that `other` omits but has by default. `full` is `other` with defaults filled in."""
    if isinstance(value, dict) and isinstance(other, dict) and isinstance(full, dict):
        return {
            name: _quiet(each, other.get(name), full.get(name))
            for name, each in value.items()
            if name in other or name not in full or list(diff(each, full[name]))
        }
    lists = [each for each in (value, other, full) if isinstance(each, list)]
    if len(lists) == len((value, other, full)) and len(value) == len(other) == len(full):
        return list(map(_quiet, value, other, full))
    return value
