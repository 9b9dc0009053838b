"""Converts the manifest of a job from one generation to another, and back without loss.

What the new generation has no field for is kept in an annotation (`tarragon.dev/v1alpha1-extra`), as the changes that
restore the old manifest. They are only applied where the manifest was not edited since: edits take precedence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tarragon.frameworks.manifest_metadata import annotations_of, with_annotations
from tarragon.frameworks.plugin import ConversionLoss, ConvertedManifest, Dialect, Manifest
from tarragon.frameworks.tensorflow.conversion.generations import GENERATIONS, ApiGeneration
from tarragon.frameworks.tensorflow.conversion.json_changes import Change, apply, diff, from_json
from tarragon.frameworks.tensorflow.conversion.losses import DecodedJob, find_losses
from tarragon.frameworks.tensorflow.conversion.metadata import manifest
from tarragon.frameworks.tensorflow.conversion.normalized_spec import (
    FIELD_ANNOTATIONS,
    NormalizedSpec,
    denormalize,
    normalize,
)
from tarragon.frameworks.tensorflow.conversion.spec_writer import write_spec
from tarragon.frameworks.tensorflow.dialects.all_dialects import DIALECT_BY_NAME
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER
from tarragon.job.model import TrainingJob
from tarragon.job.tensorboard import with_tensorboard
from tarragon.kube.codec import decode
from tarragon.kube.meta import Json


@dataclass(frozen=True, slots=True)
class _Extra:
    """The content of an annotation that keeps fields of the generation `of` in a manifest of the generation `in_`."""

    of: ApiGeneration
    in_: str
    changes: Sequence[Change]


def convert(found: Manifest, source: str, target: str) -> ConvertedManifest:
    """Convert a valid manifest. `source` and `target` are names of dialects, and may be the same."""
    origin, home = GENERATIONS[source], GENERATIONS[target]
    # A server returns objects in the version of the request, so set the one of the generation.
    own = {**manifest(found), "apiVersion": origin.api_version, "kind": origin.kind}
    extra = _extra(own, source)
    if extra is not None and extra.of != origin:
        former = _restored(own, origin, extra)
        is_whole = _says_the_same(_plain(former, extra.of, origin).manifest, own)
        if extra.of == home:
            again = former if is_whole else _merged(own, origin, extra)
            return ConvertedManifest(again, () if is_whole else _compared(own, origin, again, home))
        if is_whole:
            return _plain(former, extra.of, home)
    return ConvertedManifest(own) if origin == home else _plain(own, origin, home)


def _plain(own: Manifest, source: ApiGeneration, target: ApiGeneration) -> ConvertedManifest:
    before = _keyed(own, source)
    after = _manifest(own, write_spec(before, _meaning(own, source).job, source, target), target)
    found = sorted(diff(_keyed(after, target), before), key=lambda change: list(map(str, change.path)))
    kept = [change.as_json() for change in found]
    # If only the generation differs, no annotation is needed.
    if len(kept) > 1:
        note = json.dumps({"in": target.name, "changes": kept}, ensure_ascii=False)
        after = with_annotations(after, {**annotations_of(after), source.extra_annotation: note})
    return ConvertedManifest(after, _compared(own, source, after, target))


def _keyed(own: Manifest, generation: ApiGeneration) -> NormalizedSpec:
    return normalize(own["spec"], generation, annotations_of(own))


def _manifest(own: Manifest, found: NormalizedSpec, generation: ApiGeneration) -> Manifest:
    """The manifest of the keyed spec. Fields that do not depend on the generation stay unchanged."""
    annotations = {name: text for name, text in annotations_of(own).items() if name not in FIELD_ANNOTATIONS}
    fields = {"apiVersion": generation.api_version, "kind": generation.kind, "spec": denormalize(found, generation)}
    return with_annotations({**own, **fields}, {**annotations, **found["notes"]})


def _compared(
    before: Manifest, source: ApiGeneration, after: Manifest, target: ApiGeneration
) -> Sequence[ConversionLoss]:
    return tuple(find_losses(_meaning(before, source), _meaning(after, target)))


def _restored(own: Manifest, source: ApiGeneration, extra: _Extra) -> Manifest:
    """The original manifest, with later edits to the fields that both generations have."""
    return _manifest(_without(own, extra), apply(_keyed(own, source), extra.changes), extra.of)


def _merged(own: Manifest, source: ApiGeneration, extra: _Extra) -> Manifest:
    """The original manifest with edits that it expresses differently: these are converted first, then completed."""
    plain = _keyed(_plain(own, source, extra.of).manifest, extra.of)
    rest = [change for change in extra.changes if change.path != ("generation",)]
    return _manifest(_without(own, extra), apply(plain, rest), extra.of)


def _without(own: Manifest, extra: _Extra) -> Manifest:
    return with_annotations(
        own, {name: text for name, text in annotations_of(own).items() if name != extra.of.extra_annotation}
    )


def _says_the_same(one: Manifest, other: Manifest) -> bool:
    notes = [
        {name: text for name, text in annotations_of(each).items() if name in FIELD_ANNOTATIONS}
        for each in (one, other)
    ]
    return notes[0] == notes[1] and not list(diff(one["spec"], other["spec"]))


def _meaning(own: Manifest, generation: ApiGeneration) -> DecodedJob:
    dialect = DIALECT_BY_NAME[generation.name]
    return DecodedJob(own, _job(own, dialect), dialect)


def _job(own: Manifest, dialect: Dialect) -> TrainingJob:
    job = dialect.decode(own).job
    if job is None:
        raise ValueError(f"{dialect.name} can't decode the job")
    return with_tensorboard(job, MAIN_CONTAINER)


def _extra(own: Manifest, source: str) -> _Extra | None:
    """The kept fields for a manifest of this generation. Invalid annotations are not from Tarragon and are skipped."""
    annotations = annotations_of(own)
    for generation in GENERATIONS.values():
        try:
            kept: Json = decode(annotations.get(generation.extra_annotation, "null"), object)
            if kept is not None and kept["in"] == source:
                return _Extra(generation, source, from_json(kept["changes"]))
        except (ValueError, TypeError, KeyError):
            continue
    return None
