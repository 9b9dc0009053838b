"""Decodes the jobs of all kinds that have a map of replica specs, and policies in `spec.runPolicy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tarragon.frameworks.kubeflow.fields import RUN_POLICY, PolicyField
from tarragon.frameworks.kubeflow.metadata import TOP_LEVEL_FIELDS, check_metadata, decode_name, decode_time
from tarragon.frameworks.kubeflow.replica_specs import decode_replica_specs
from tarragon.frameworks.kubeflow.run_policy import decode_run_policy
from tarragon.frameworks.kubeflow.shape import KindShape
from tarragon.frameworks.plugin import DecodedManifest, Manifest
from tarragon.job.model import CleanPodPolicy, ReplicaType, RestartPolicy, TrainingJob
from tarragon.kube.field_reader import CollectedProblems, FieldReader
from tarragon.kube.meta import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation by the name of its dialect, and its defaults."""

    name: str
    api_version: str
    clean_pods: CleanPodPolicy
    restart_policies: Mapping[ReplicaType, RestartPolicy] = field(default_factory=dict)
    """The default restart policy of each type; Never for types that are not in the map."""


def manifest_decoder(
    decode_spec: Callable[[FieldReader, FieldReader], TrainingJob], *, needs: str
) -> Callable[[Manifest], DecodedManifest]:
    """The `decode` of a dialect. It never raises: every fault becomes a Problem.

    `decode_spec` gets the manifest and its `spec`, and notes the spec's unknown fields. `needs` is the remedy for a
    manifest without a spec.
    """

    def decode(manifest: Manifest) -> DecodedManifest:
        notes = CollectedProblems()
        root = FieldReader(manifest, "", notes)
        root.note_unknown_fields(TOP_LEVEL_FIELDS)
        spec = root.field("spec")
        if spec.is_missing:
            spec.add_problem("is missing", needs)
        job = decode_spec(root, spec)
        return DecodedManifest(job=job, problems=notes.problems, unknown=notes.unknown, warnings=notes.warnings)

    return decode


def decoder(shape: KindShape, generation: Generation) -> Callable[[Manifest], DecodedManifest]:
    """The `decode` of a dialect that has nothing but replica specs and a run policy."""

    def decode_spec(root: FieldReader, spec: FieldReader) -> TrainingJob:
        job = decode_job(root, spec, shape, generation)
        spec.note_unknown_fields({shape.replica_specs, RUN_POLICY})
        spec.field(RUN_POLICY).note_unknown_fields(frozenset(PolicyField))
        return job

    return manifest_decoder(decode_spec, needs=f"{shape.kind}s need {shape.replica_specs_path}")


def decode_job(root: FieldReader, spec: FieldReader, shape: KindShape, generation: Generation) -> TrainingJob:
    """Decode what all kinds have. `spec` is that of the manifest `root`, perhaps without some of its fields."""
    metadata = root.field("metadata")
    check_metadata(metadata)
    quiet = FieldReader(metadata.value, metadata.path, CollectedProblems())
    return TrainingJob(
        kind=shape.kind,
        api_version=generation.api_version,
        dialect=generation.name,
        key=Key(quiet.field("namespace").string(), decode_name(quiet, metadata)),
        uid=quiet.field("uid").string(),
        creation_time=decode_time(quiet.field("creationTimestamp")),
        replica_specs=tuple(decode_replica_specs(spec.field(shape.replica_specs), shape, generation.restart_policies)),
        run_policy=decode_run_policy(spec, generation.clean_pods),
        success_policy=shape.success_policy,
        restarts_together=shape.restarts_together,
        labels=quiet.field("labels").string_map(),
        annotations=quiet.field("annotations").string_map(),
    )
