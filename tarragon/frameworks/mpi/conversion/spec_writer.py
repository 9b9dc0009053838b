"""Writes the spec of an MPIJob in another generation: all fields that it has, and defaults where the two differ."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.conversion.kind_conversion import NormalizedSpec
from tarragon.frameworks.kubeflow.fields import RUN_POLICY, PolicyField
from tarragon.frameworks.mpi.conversion.failures import all_failures_are_final, fatal_failure
from tarragon.frameworks.mpi.conversion.generations import KNOWN_FIELDS, MPIJobGeneration
from tarragon.frameworks.mpi.conversion.groups import convert_replicas
from tarragon.frameworks.mpi.fields import LAUNCHER, SpecField
from tarragon.frameworks.mpi.manifest.decoding import BACKOFF_LIMIT
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.frameworks.mpi.options import LauncherCreation, options_of
from tarragon.job.model import TrainingJob
from tarragon.kube.meta import Json


def write_spec(
    found: NormalizedSpec, job: TrainingJob, source: MPIJobGeneration, target: MPIJobGeneration
) -> NormalizedSpec:
    """The keyed form of the new manifest. `job` is the old manifest as decoded by the source generation."""
    policies = _policies(found, job, source, target)
    beside = {name: value for name, value in policies.items() if name in target.flat_policies}
    nested = {name: value for name, value in policies.items() if name not in beside}
    is_nested = target.has_nested_policies
    return {
        "generation": target.name,
        "groups": convert_replicas(found, job, source, target),
        "policy": nested if is_nested else beside,
        "rest": {
            **_implied(job, source, target),
            **_rest(found, source, target),
            **({RUN_POLICY: nested} if nested and not is_nested else {}),
        },
        "notes": {},
        "words": {},
    }


def _policies(
    found: NormalizedSpec, job: TrainingJob, source: MPIJobGeneration, target: MPIJobGeneration
) -> dict[str, Json]:
    """The policies that have an effect, and unknown ones. Those in runPolicy override those beside it."""
    flat = {name: value for name, value in found["rest"].items() if name in source.effective_flat_policies}
    policies = {**flat, **found["policy"], **found["rest"].get(RUN_POLICY, {})}
    policy = job.run_policy
    if policy.clean_pod_policy is not target.clean_pods:
        policies.setdefault(PolicyField.CLEAN_POD_POLICY.value, policy.clean_pod_policy.value)
    if source.engine is not target.engine:
        policies[PolicyField.BACKOFF_LIMIT.value] = _backoff_limit(job, target)
    return policies


def _backoff_limit(job: TrainingJob, target: MPIJobGeneration) -> int:
    """The limit that the same failure exceeds, or the default of batch Jobs, which always have one."""
    failure = 1 if all_failures_are_final(job) else fatal_failure(job)
    if failure is None:
        return BACKOFF_LIMIT
    return failure - 1 if target.engine is LauncherEngine.BATCH_JOB else failure


def _rest(found: NormalizedSpec, source: MPIJobGeneration, target: MPIJobGeneration) -> dict[str, Json]:
    """The fields that both generations have, and unknown fields."""
    both = source.fields & target.fields
    return {name: value for name, value in found["rest"].items() if name in both or name not in KNOWN_FIELDS}


def _implied(job: TrainingJob, source: MPIJobGeneration, target: MPIJobGeneration) -> dict[str, Json]:
    """Fields that must be added so that the job keeps its meaning, if it does not have them."""
    options, launcher = options_of(job), job.replica_spec(LAUNCHER)
    implied: dict[str, Json] = {}
    if target.has_one_template or options.slots != 1:
        implied[SpecField.SLOTS.value] = options.slots
    if SpecField.CREATION in target.fields - source.fields and launcher is not None and launcher.starts_after:
        implied[SpecField.CREATION.value] = LauncherCreation.WAIT_FOR_WORKERS_READY.value
    if SpecField.LAUNCHER_WORKS in target.fields - source.fields and options.launcher_works:
        implied[SpecField.LAUNCHER_WORKS.value] = True
    return implied
