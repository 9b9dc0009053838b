"""The table of generations of MPIJob agrees with the dialects."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import FLAT_POLICIES, PolicyField
from tarragon.frameworks.mpi.conversion.generations import FIELDS, GENERATIONS
from tarragon.frameworks.mpi.dialects import DIALECT_BY_NAME, DIALECTS
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.frameworks.mpi.options import options_of
from tarragon.frameworks.plugin import BackoffCount
from tarragon.job.model import TrainingJob
from tarragon.plan.input.decode_and_validate import DecodedJob, decode_and_validate
from tests.frameworks.mpi_jobs import mpijob, short_job

by_name = pytest.mark.parametrize("name", GENERATIONS)

VALUES: dict[str, Any] = {
    "slotsPerWorker": 3,
    "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2},
    "mainContainer": "mpi",
    "sshAuthMountPath": "/keys",
    "mpiImplementation": "Intel",
    "launcherCreationPolicy": "WaitForWorkersReady",
    "runLauncherAsWorker": True,
    "gpus": 4,
    "gpusPerNode": 2,
    "processingUnits": 4,
    "processingUnitsPerNode": 2,
    "processingResourceType": "cpu",
    "launcherOnMaster": True,
    "cleanPodPolicy": "Running",
    "ttlSecondsAfterFinished": 1,
    "activeDeadlineSeconds": 1,
    "backoffLimit": 1,
    "schedulingPolicy": {"queue": "x"},
    "suspend": True,
    "managedBy": "x",
}


def smallest(name: str, **spec: Any) -> dict[str, Any]:
    """The smallest job of a generation, with its annotation, as some manifests are valid in several generations."""
    manifest = short_job(**spec) if GENERATIONS[name].has_one_template else mpijob(name, **spec)
    manifest["metadata"]["annotations"] = {"tarragon.dev/generation": name}
    return manifest


def taken(manifest: dict[str, Any]) -> DecodedJob:
    return decode_and_validate(MPI, manifest)


def job(manifest: dict[str, Any]) -> TrainingJob:
    found = taken(manifest).job
    assert found is not None
    return found


def test_the_table_has_every_dialect() -> None:
    assert list(GENERATIONS) == [dialect.name for dialect in DIALECTS]


@by_name
def test_the_defaults_of_the_table_are_those_of_the_dialect(name: str) -> None:
    found, generation = job(smallest(name)), GENERATIONS[name]

    counts_failures = DIALECT_BY_NAME[name].backoff_count is BackoffCount.BATCH_JOB
    assert found.dialect == name
    assert found.run_policy.clean_pod_policy is generation.clean_pods
    assert options_of(found).transport is generation.transport
    assert counts_failures == (generation.engine is LauncherEngine.BATCH_JOB)


@pytest.mark.parametrize("name", [name for name in GENERATIONS if not GENERATIONS[name].has_one_template])
@pytest.mark.parametrize("kind", ["Launcher", "Worker"])
def test_the_restart_policies_of_the_table_are_those_of_the_dialect(name: str, kind: str) -> None:
    generation, manifest = GENERATIONS[name], smallest(name)
    default = generation.launcher_restarts if kind == "Launcher" else generation.worker_restarts

    omitted = job(manifest).replica_specs
    manifest["spec"]["mpiReplicaSpecs"][kind]["restartPolicy"] = default.value

    assert job(manifest).replica_specs == omitted


@by_name
@pytest.mark.parametrize("field", sorted(FIELDS))
def test_the_fields_of_the_table_are_those_that_the_dialect_accepts(name: str, field: str) -> None:
    found = taken(smallest(name, **{field: VALUES[field]}))

    is_known = not any(problem.path == f"spec.{field}" for problem in found.unknown_fields)
    assert is_known == (field in GENERATIONS[name].fields)


@by_name
@pytest.mark.parametrize("policy", PolicyField)
def test_the_policies_of_the_table_are_those_that_the_dialect_follows(name: str, policy: PolicyField) -> None:
    generation, value = GENERATIONS[name], VALUES[policy]

    plain = job(smallest(name)).run_policy
    is_followed = job(smallest(name, runPolicy={policy.value: value})).run_policy != plain
    is_followed_beside = job(smallest(name, **{policy.value: value})).run_policy != plain

    assert is_followed == (policy in generation.policies)
    assert is_followed_beside == (policy in generation.effective_flat_policies)
    assert generation.flat_policies <= generation.effective_flat_policies <= FLAT_POLICIES


def test_only_the_fewest_workers_of_the_table_are_valid() -> None:
    for name, generation in GENERATIONS.items():
        if generation.has_one_template:
            continue
        problems = [str(problem) for problem in taken(mpijob(name, workers=0)).problems]
        assert bool(problems) == (generation.least_workers > 0), name
