"""Converts the manifest of a job from one generation to another, and back without loss.

What the new generation has no field for is kept in an annotation (`tarragon.dev/v1alpha1-extra`), as the changes that
restore the old manifest. They are only applied where the manifest was not edited since: edits take precedence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from tarragon.frameworks.kubeflow.conversion.json_changes import Change, apply, diff, from_json
from tarragon.frameworks.kubeflow.conversion.kind_conversion import GenerationT, KindConversion, NormalizedSpec
from tarragon.frameworks.kubeflow.conversion.losses import DecodedJob, find_losses
from tarragon.frameworks.manifest_metadata import annotations_of, with_annotations
from tarragon.frameworks.plugin import ConversionLoss, ConvertedManifest, Manifest
from tarragon.job.tensorboard import with_tensorboard
from tarragon.kube.codec import decode
from tarragon.kube.meta import Json


@dataclass(frozen=True, slots=True)
class _Extra(Generic[GenerationT]):
    """The content of an annotation that keeps fields of the generation `of` in a manifest of the generation `in_`."""

    of: GenerationT
    in_: str
    changes: Sequence[Change]


def convert(kind: KindConversion[GenerationT], found: Manifest, source: str, target: str) -> ConvertedManifest:
    """Convert a valid manifest. `source` and `target` are names of dialects, and may be the same."""
    origin, home = kind.generations[source], kind.generations[target]
    # A server returns objects in the version of the request, so set the one of the generation.
    own = {**kind.as_manifest(found), "apiVersion": origin.api_version, "kind": origin.kind}
    extra = _extra(kind, own, source)
    if extra is not None and extra.of != origin:
        former = _restored(kind, own, origin, extra)
        is_whole = _says_the_same(kind, _plain(kind, former, extra.of, origin).manifest, own)
        if extra.of == home:
            again = former if is_whole else _merged(kind, own, origin, extra)
            return ConvertedManifest(again, () if is_whole else _compared(kind, own, origin, again, home))
        if is_whole:
            return _plain(kind, former, extra.of, home)
    return ConvertedManifest(own) if origin == home else _plain(kind, own, origin, home)


def _plain(
    kind: KindConversion[GenerationT], own: Manifest, source: GenerationT, target: GenerationT
) -> ConvertedManifest:
    before = _keyed(kind, own, source)
    written = kind.write_spec(before, _meaning(kind, own, source).job, source, target)
    after = _manifest(kind, own, written, target)
    keyed = _keyed(kind, after, target)
    found = sorted(diff(keyed, before), key=lambda change: list(map(str, change.path)))
    # If only the generation differs, no annotation is needed, unless the defaults mean something else.
    if len(found) > 1 or kind.write_spec(keyed, _meaning(kind, after, target).job, target, source) != before:
        kept = [change.as_json() for change in found]
        note = json.dumps({"in": target.name, "changes": kept}, ensure_ascii=False)
        after = with_annotations(after, {**annotations_of(after), source.extra_annotation: note})
    return ConvertedManifest(after, _compared(kind, own, source, after, target))


def _keyed(kind: KindConversion[GenerationT], own: Manifest, generation: GenerationT) -> NormalizedSpec:
    return kind.normalize(own["spec"], generation, annotations_of(own))


def _manifest(
    kind: KindConversion[GenerationT], own: Manifest, found: NormalizedSpec, generation: GenerationT
) -> Manifest:
    """The manifest of the keyed spec. Fields that do not depend on the generation stay unchanged."""
    annotations = {name: text for name, text in annotations_of(own).items() if name not in kind.field_annotations}
    spec = kind.denormalize(found, generation)
    fields = {"apiVersion": generation.api_version, "kind": generation.kind, "spec": spec}
    return with_annotations({**own, **fields}, {**annotations, **found["notes"]})


def _compared(
    kind: KindConversion[GenerationT], before: Manifest, source: GenerationT, after: Manifest, target: GenerationT
) -> Sequence[ConversionLoss]:
    return tuple(find_losses(kind.loss_topics, _meaning(kind, before, source), _meaning(kind, after, target)))


def _restored(
    kind: KindConversion[GenerationT], own: Manifest, source: GenerationT, extra: _Extra[GenerationT]
) -> Manifest:
    """The original manifest, with later edits to the fields that both generations have."""
    return _manifest(kind, _without(own, extra), apply(_keyed(kind, own, source), extra.changes), extra.of)


def _merged(
    kind: KindConversion[GenerationT], own: Manifest, source: GenerationT, extra: _Extra[GenerationT]
) -> Manifest:
    """The original manifest with edits that it expresses differently: these are converted first, then completed."""
    plain = _keyed(kind, _plain(kind, own, source, extra.of).manifest, extra.of)
    rest = [change for change in extra.changes if change.path != ("generation",)]
    return _manifest(kind, _without(own, extra), apply(plain, rest), extra.of)


def _without(own: Manifest, extra: _Extra[GenerationT]) -> Manifest:
    return with_annotations(
        own, {name: text for name, text in annotations_of(own).items() if name != extra.of.extra_annotation}
    )


def _says_the_same(kind: KindConversion[GenerationT], one: Manifest, other: Manifest) -> bool:
    notes = [
        {name: text for name, text in annotations_of(each).items() if name in kind.field_annotations}
        for each in (one, other)
    ]
    return notes[0] == notes[1] and not list(diff(one["spec"], other["spec"]))


def _meaning(kind: KindConversion[GenerationT], own: Manifest, generation: GenerationT) -> DecodedJob:
    dialect = kind.dialects[generation.name]
    job = dialect.decode(own).job
    if job is None:
        raise ValueError(f"{dialect.name} can't decode the job")
    return DecodedJob(
        manifest=own,
        job=with_tensorboard(job, kind.main_container),
        dialect=dialect,
        policies=generation.policies,
    )


def _extra(kind: KindConversion[GenerationT], own: Manifest, source: str) -> _Extra[GenerationT] | None:
    """The kept fields for a manifest of this generation. Invalid annotations are not from Tarragon and are skipped."""
    annotations = annotations_of(own)
    for generation in kind.generations.values():
        try:
            kept: Json = decode(annotations.get(generation.extra_annotation, "null"), object)
            if kept is not None and kept["in"] == source:
                return _Extra(generation, source, from_json(kept["changes"]))
        except (ValueError, TypeError, KeyError):
            continue
    return None
