"""Decodes an MPIJob with replica specs: all generations since v1alpha2."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tarragon.frameworks.kubeflow.decoding import Generation, decode_job, manifest_decoder
from tarragon.frameworks.kubeflow.elastic import ElasticBounds, within_bounds
from tarragon.frameworks.kubeflow.fields import WORKER, PolicyField
from tarragon.frameworks.mpi.fields import (
    KIND,
    LAUNCHER,
    MAX_REPLICAS,
    MIN_REPLICAS,
    SHAPE,
    V2_ONLY,
    SpecField,
    V1Alpha1Field,
)
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine, with_restart_policies
from tarragon.frameworks.mpi.options import SSH_PATH, Implementation, LauncherCreation, MpiOptions, Transport
from tarragon.frameworks.plugin import DecodedManifest, Manifest
from tarragon.job.model import ReplicaSpec, RestartPolicy, RunPolicy, TrainingJob
from tarragon.kube.field_reader import FieldReader

GPU_KEY_SUFFIX = ".com/gpu"
BACKOFF_LIMIT = 6
"""The default backoffLimit of batch Jobs."""

_COMMON = frozenset({SpecField.REPLICAS, SpecField.RUN_POLICY, SpecField.SLOTS, SpecField.ELASTIC_POLICY})


@dataclass(frozen=True, slots=True, kw_only=True)
class MapGeneration:
    """A generation with replica specs: its fields, its defaults, and how its launcher lives and reaches workers."""

    generation: Generation
    transport: Transport
    engine: LauncherEngine
    fields: frozenset[str] = frozenset()
    """The fields of spec beside those of all generations. All other fields have no effect."""
    restart_policies: frozenset[RestartPolicy] = frozenset(RestartPolicy)
    """The restart policies that the API has."""
    gpu_launcher_works: bool = False
    """Whether a launcher with a GPU runs ranks too."""

    @property
    def known_fields(self) -> frozenset[str]:
        return _COMMON | self.fields


def decoder(of: MapGeneration) -> Callable[[Manifest], DecodedManifest]:
    """The `decode` of a dialect."""

    def decode_spec(root: FieldReader, spec: FieldReader) -> TrainingJob:
        job = _job(root, _of_generation(spec, of), of)
        _note_fields(spec, of)
        return job

    return manifest_decoder(decode_spec, needs=f"{KIND}s need {SHAPE.replica_specs_path}")


def elastic_bounds(spec: FieldReader) -> ElasticBounds:
    found = spec.field(SpecField.ELASTIC_POLICY)
    found.is_map()
    found.note_unknown_fields((MIN_REPLICAS, MAX_REPLICAS))
    return ElasticBounds(found.field(MIN_REPLICAS), found.field(MAX_REPLICAS))


def with_backoff_limit(policy: RunPolicy, engine: LauncherEngine) -> RunPolicy:
    """The policy with the default limit of batch Jobs, where the launcher was one."""
    if engine is LauncherEngine.POD or policy.backoff_limit is not None:
        return policy
    return replace(policy, backoff_limit=BACKOFF_LIMIT)


def _job(root: FieldReader, spec: FieldReader, of: MapGeneration) -> TrainingJob:
    job = decode_job(root, spec, SHAPE, of.generation)
    options = _options(spec, job.replica_specs, of)
    written = [_with_workers_default(group, spec) for group in job.replica_specs]
    # Without a worker, ranks can only run in the launcher.
    elastic = elastic_bounds(spec).decode(written, least_default=0 if options.launcher_works else 1)
    _check_policies(written, spec, of)
    groups = [within_bounds(group, elastic, spec.notes) for group in written]
    creation = spec.field(SpecField.CREATION).enum(LauncherCreation, LauncherCreation.AT_STARTUP)
    if of.transport is Transport.EXEC:
        creation = LauncherCreation.WAIT_FOR_WORKERS_READY  # the API server runs commands only in started pods
    return replace(
        job,
        replica_specs=with_restart_policies(groups, of.engine, creation, elastic),
        run_policy=with_backoff_limit(job.run_policy, of.engine),
        elastic_policy=elastic,
        options=options,
    )


def _check_policies(groups: Iterable[ReplicaSpec], spec: FieldReader, of: MapGeneration) -> None:
    for group in groups:
        if group.restart_policy not in of.restart_policies:
            written = FieldReader(None, f"{group.field_path}.restartPolicy", spec.notes)
            known = " or ".join(sorted(of.restart_policies))
            written.add_problem(f"must be {known}, not {group.restart_policy}", f"write {RestartPolicy.ON_FAILURE}")


def _with_workers_default(group: ReplicaSpec, spec: FieldReader) -> ReplicaSpec:
    """Workers default to none, unlike all other types."""
    if group.type != WORKER:
        return group
    written = next((value for name, value in spec.field(SpecField.REPLICAS).fields() if name.lower() == "worker"), None)
    is_missing = written is None or written.field("replicas").is_missing
    return replace(group, replicas=0) if is_missing else group


def _options(spec: FieldReader, groups: Iterable[ReplicaSpec], of: MapGeneration) -> MpiOptions:
    launcher = next((group for group in groups if group.type == LAUNCHER), None)
    has_gpu = of.gpu_launcher_works and launcher is not None and requests_gpu(launcher)
    slots = spec.field(SpecField.SLOTS).integer(1)
    return MpiOptions(
        slots=1 if slots is None else slots,
        transport=of.transport,
        implementation=spec.field(SpecField.IMPLEMENTATION).enum(Implementation, Implementation.OPEN_MPI),
        main_container=spec.field(SpecField.MAIN_CONTAINER).string(),
        ssh_path=spec.field(SpecField.SSH_PATH).string(SSH_PATH),
        launcher_works=spec.field(SpecField.LAUNCHER_WORKS).boolean() or has_gpu,
    )


def requests_gpu(group: ReplicaSpec) -> bool:
    """Whether a container has a limit of GPUs, as the v1 operators recognised them by name."""
    containers = group.template.get("spec", {}).get("containers", [])
    names = (name for each in containers for name in each.get("resources", {}).get("limits", {}))
    return any(name.endswith(GPU_KEY_SUFFIX) or "gpu" in name for name in names)


def _of_generation(spec: FieldReader, of: MapGeneration) -> FieldReader:
    """The spec without the fields of other generations."""
    if not isinstance(spec.value, dict) or spec.value.keys() <= of.known_fields:
        return spec
    return replace(spec, value={name: value for name, value in spec.value.items() if name in of.known_fields})


def _note_fields(spec: FieldReader, of: MapGeneration) -> None:
    for name, value in spec.fields():
        if name in of.known_fields:
            continue
        if name in {*PolicyField}:
            value.add_unknown_field(f"move it to spec.{SpecField.RUN_POLICY}.{name}")
        elif name in V2_ONLY | {SpecField.MAIN_CONTAINER}:
            value.add_unknown_field(f"{of.generation.api_version} does not have it")
        elif name in {*V1Alpha1Field}:
            value.add_unknown_field(f"it belongs to v1alpha1, and has no effect with spec.{SpecField.REPLICAS}")
    spec.note_unknown_fields({*of.known_fields, *PolicyField, *SpecField, *V1Alpha1Field})
    spec.field(SpecField.RUN_POLICY).note_unknown_fields(frozenset(PolicyField))
