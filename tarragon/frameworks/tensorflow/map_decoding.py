"""Decodes a TFJob with a map of replicas: all generations since v1alpha2, including the fields of DRAGON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tarragon.frameworks.kubeflow.decoding import Generation, decode_job, manifest_decoder
from tarragon.frameworks.kubeflow.elastic import ElasticBounds, within_bounds
from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, GROUP, WORKER, PolicyField
from tarragon.frameworks.plugin import DecodedManifest, Manifest
from tarragon.frameworks.tensorflow.fields import ELASTIC_FIELDS, FIELDS_WITHOUT_EFFECT, KIND, NESTED_ONLY, SpecField
from tarragon.frameworks.tensorflow.shape import SHAPE
from tarragon.job.model import CleanPodPolicy, SuccessPolicy, TrainingJob
from tarragon.kube.field_reader import FieldReader

EFFECTIVE_FIELDS = frozenset({SpecField.REPLICAS, *FLAT_POLICIES, *NESTED_ONLY, *ELASTIC_FIELDS})
"""The fields that have an effect in at least one generation with a map of replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFields:
    """The fields of a generation, and its defaults."""

    generation: str
    clean_pods: CleanPodPolicy
    api_version: str = f"{GROUP}/v1"
    fields: frozenset[str] = EFFECTIVE_FIELDS
    """The fields of spec in this generation. All other fields have no effect."""


def decoder(defaults: GenerationFields) -> Callable[[Manifest], DecodedManifest]:
    """The `decode` of a dialect."""

    def decode_spec(root: FieldReader, spec: FieldReader) -> TrainingJob:
        job = _job(root, _of_generation(spec, defaults), defaults)
        _fields(spec, defaults)
        return job

    return manifest_decoder(decode_spec, needs=f"{KIND}s need spec.{SpecField.REPLICAS}")


def _job(root: FieldReader, spec: FieldReader, defaults: GenerationFields) -> TrainingJob:
    generation = Generation(name=defaults.generation, api_version=defaults.api_version, clean_pods=defaults.clean_pods)
    job = decode_job(root, spec, SHAPE, generation)
    tolerates_failures = spec.field(SpecField.DYNAMIC_WORKER).boolean()
    groups = [replace(group, may_fail=tolerates_failures and group.type == WORKER) for group in job.replica_specs]
    bounds = ElasticBounds(spec.field(SpecField.MIN_INSTANCES), spec.field(SpecField.MAX_INSTANCES))
    elastic = bounds.decode(groups)
    return replace(
        job,
        replica_specs=tuple(within_bounds(group, elastic, spec.notes) for group in groups),
        success_policy=spec.field(SpecField.SUCCESS_POLICY).enum(SuccessPolicy, SuccessPolicy.WORKER_ZERO),
        elastic_policy=elastic,
    )


def _of_generation(spec: FieldReader, defaults: GenerationFields) -> FieldReader:
    """The spec without the fields of other generations."""
    if not isinstance(spec.value, dict) or spec.value.keys() <= defaults.fields:
        return spec
    known = {name: value for name, value in spec.value.items() if name in defaults.fields}
    return replace(spec, value=known)


def _fields(spec: FieldReader, defaults: GenerationFields) -> None:
    """Note unknown fields and those without effect. Misplaced fields get a more specific remedy than
    that of `note_unknown_fields`.
    """
    misplaced = frozenset(PolicyField) - FLAT_POLICIES
    for name, value in spec.fields():
        if name in FIELDS_WITHOUT_EFFECT:
            value.add_warning(
                f"has no effect with spec.{SpecField.REPLICAS}: it belongs to an older generation", "remove it"
            )
        elif name in (misplaced | EFFECTIVE_FIELDS) - defaults.fields:
            value.add_unknown_field(_remedy(name, defaults))
    spec.note_unknown_fields({*EFFECTIVE_FIELDS, *FIELDS_WITHOUT_EFFECT, *misplaced})
    if SpecField.RUN_POLICY in defaults.fields:
        spec.field(SpecField.RUN_POLICY).note_unknown_fields(frozenset(PolicyField))


def _remedy(name: str, defaults: GenerationFields) -> str:
    if name not in EFFECTIVE_FIELDS and SpecField.RUN_POLICY in defaults.fields:
        return f"move it to spec.{SpecField.RUN_POLICY}.{name}"
    if name == SpecField.RUN_POLICY:
        flat = ", ".join(sorted(FLAT_POLICIES & defaults.fields))
        return f"{defaults.api_version} has these policies directly in spec: {flat}"
    return f"{defaults.api_version} does not have it: submit the job as {GROUP}/v1"
