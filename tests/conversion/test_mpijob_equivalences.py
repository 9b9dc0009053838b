"""A diff of MPIJobs shows no defaults and no spellings."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.mpi.conversion.convert import normalize_for_diff
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS
from tests.frameworks.mpi_jobs import V1, V1ALPHA2, V2BETA1, mpijob, of, short_job


def differ(live: dict[str, Any], new: dict[str, Any]) -> bool:
    before, after = normalize_for_diff(live, new, new["apiVersion"])
    return before != after


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_job_that_was_resumed_does_not_differ_from_one_that_was_never_suspended(name: str) -> None:
    resumed, suspended = of(name), of(name)
    resumed["spec"]["runPolicy"] = {"suspend": False}
    suspended["spec"]["runPolicy"] = {"suspend": True}

    assert not differ(resumed, of(name))
    assert not differ(of(name), resumed)
    assert differ(suspended, of(name))


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        (short_job(GPUs=4, gpusPerNode=1, launcherOnMaster=False), short_job(gpus=4)),
        (short_job(replicas=2, processingResourceType="nvidia.com/gpu", backoffLimit=6), short_job(replicas=2)),
        (short_job(replicas=2, cleanPodPolicy="All"), short_job(replicas=2)),
        (mpijob(V1ALPHA2, cleanPodPolicy="None", specs={"Worker": {"restartPolicy": "Always"}}), mpijob(V1ALPHA2)),
        (mpijob(V1, slotsPerWorker=1, specs={"Launcher": {"replicas": 1, "restartPolicy": "Never"}}), mpijob(V1)),
        (mpijob(sshAuthMountPath="/root/.ssh", mpiImplementation="OpenMPI", runLauncherAsWorker=False), mpijob()),
        (mpijob(launcherCreationPolicy="AtStartup", runPolicy={"backoffLimit": 6}), mpijob()),
    ],
)
def test_defaults_and_spellings_do_not_differ(written: dict[str, Any], plain: dict[str, Any]) -> None:
    assert not differ(written, plain)
    assert not differ(plain, written)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (short_job(gpus=4), short_job(gpus=8)),
        (mpijob(V1, runPolicy={"backoffLimit": 6}), mpijob(V1)),
        (mpijob(V2BETA1, specs={"Launcher": {"restartPolicy": "Never"}}), mpijob(V2BETA1)),
        (short_job(replicas=1, slotsPerWorker=1), short_job(replicas=1, slotsPerWorker=2)),
    ],
)
def test_what_means_something_else_differs(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert differ(one, other)
    assert differ(other, one)


def test_the_types_of_replicas_are_compared_without_case() -> None:
    lower = mpijob(V1)
    lower["spec"]["mpiReplicaSpecs"] = {kind.lower(): group for kind, group in lower["spec"]["mpiReplicaSpecs"].items()}

    assert not differ(lower, mpijob(V1))
