"""The life of MPIJobs of all generations; the rules alone are in test_worker_loss.py and test_start_order.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.mpi.objects.owned_objects import ROLES, owned_objects
from tarragon.frameworks.owned_objects import OwnedContent
from tarragon.job.model import Replica
from tarragon.kube.codec import decode, encode
from tarragon.plan.reconcile.decide import decide
from tests.frameworks.mpi_jobs import EXEC, V1, V1ALPHA1, V1ALPHA2, V2BETA1, mpijob, observation, short_job, template
from tests.plan.launcher_world import LauncherWorld

CONTAINER = "any"
POD, WORKER_0, WORKER_1 = "pi-launcher", "pi-worker-0", "pi-worker-1"
GENERATIONS = (*EXEC, V2BETA1)
BATCH_JOBS = (V1ALPHA1, V1ALPHA2, V2BETA1)


class MpiWorld(LauncherWorld):
    """An MPIJob without the objects that are no pods."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self.framework = replace(MPI, owned_objects=lambda _: iter(()))

    def replica(self, name: str) -> Replica:
        return Replica(LAUNCHER, 0) if name == POD else Replica(WORKER, int(name.rpartition("-")[2]))

    def _container(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The first container is the main one, whatever its name."""
        return {**super()._container(state), "name": CONTAINER}

    def counted(self, name: str) -> int:
        record = self.status.restarts.get(self.replica(name))
        return record.counted_for_backoff_limit if record is not None else 0

    def come_back(self) -> None:
        """All that is missing is made anew and runs: first the workers, then the launcher."""
        for _ in range(3):
            self.settle_and_wait()
            self.pass_time(1)
            self.run_ready()
        self.settle()


def of(generation: str, *, workers: int = 2, launcher: str = "", worker: str = "", **run_policy: Any) -> dict[str, Any]:
    """A job of that generation, with policies and limits."""
    if generation == V1ALPHA1:
        job = short_job(pod=template(name=CONTAINER, command=["mpirun", "pi"]), replicas=workers, **run_policy)
    else:
        job = mpijob(generation, workers=workers, runPolicy=run_policy)
        for kind, policy in (("Launcher", launcher), ("Worker", worker)):
            group = job["spec"]["mpiReplicaSpecs"][kind]
            group["template"] = template(name=CONTAINER, command=["run"])
            if policy:
                group["restartPolicy"] = policy
    job["metadata"]["namespace"] = "n1"
    return job


def test_the_warning_that_a_field_changed_the_generation_is_an_event_before_the_generation_is_recorded() -> None:
    world = MpiWorld(mpijob(V1, mpiImplementation="Intel"))

    world.settle()
    world.admit(Launcher=1, Worker=2)
    world.settle()

    messages = [event.message for event in world.events if event.reason == "QuestionableSpec"]
    assert [message.partition(" does not")[0] for message in messages] == ["apiVersion: kubeflow.org/v1"]


def begun(job: dict[str, Any]) -> MpiWorld:
    world = MpiWorld(job)
    world.settle()
    world.admit()
    world.settle()
    return world


def running(job: dict[str, Any]) -> MpiWorld:
    world = begun(job)
    world.come_back()
    assert world.tarragon["state"] == "Running"
    world.pass_time(600)
    return world


@pytest.mark.parametrize("generation", EXEC)
def test_launchers_that_reach_workers_by_exec_wait_for_them(generation: str) -> None:
    world = begun(of(generation))

    assert set(world.pods) == {WORKER_0, WORKER_1}


@pytest.mark.parametrize("generation", [V1ALPHA1, V1ALPHA2, V1])
def test_a_job_without_workers_starts_its_launcher_at_once(generation: str) -> None:
    world = begun(of(generation, workers=0))

    assert set(world.pods) == {POD}


def test_a_role_without_rules_is_not_patched_for_ever_although_api_servers_return_null() -> None:
    world = begun(of(V1, workers=0))
    owned = [
        decode(encode({**each.body, "rules": None}), OwnedContent)
        for each in owned_objects(observation(of(V1, workers=0)))
        if each.resource is ROLES
    ]
    seen = replace(world.observed(), owned_objects={(ROLES.full_name, each.metadata.name): each for each in owned})

    step = decide(MPI, seen, world.now)

    assert [each.metadata.name for each in owned] == [POD]
    assert not step.patches
    assert not [create for create in step.creates if create.resource == ROLES]


def test_at_startup_the_launcher_is_created_along_with_its_workers() -> None:
    world = begun(of(V2BETA1))

    assert set(world.pods) == {POD, WORKER_0, WORKER_1}


def test_mpi_615_a_suspended_job_that_waits_for_ready_workers_has_no_launcher() -> None:
    job = of(V2BETA1, suspend=True)
    job["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    world = MpiWorld(job)
    world.settle()
    assert world.created == {}

    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    world.admit()
    world.settle()
    assert set(world.pods) == {WORKER_0, WORKER_1}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_evicted_worker_takes_its_launcher_along_and_nothing_counts(generation: str) -> None:
    world = running(of(generation, backoffLimit=0))
    world.disrupt(WORKER_1)
    world.exit(POD, 255)
    world.come_back()

    assert world.tarragon["state"] == "Running"
    assert (world.created[POD], world.created[WORKER_0], world.created[WORKER_1]) == (2, 1, 2)
    assert (world.counted(POD), world.counted(WORKER_1)) == (0, 0)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_evicted_launcher_is_replaced(generation: str) -> None:
    world = running(of(generation, backoffLimit=0))
    world.disrupt(POD)
    world.come_back()

    assert world.tarragon["state"] == "Running"
    assert (world.created[POD], world.created[WORKER_1]) == (2, 1)


@pytest.mark.parametrize("generation", BATCH_JOBS)
def test_a_launcher_starts_again_until_its_failures_exceed_the_limit_of_a_batch_job(generation: str) -> None:
    """Six, where the manifest has none; and whatever its restartPolicy."""
    world = running(of(generation, launcher="Never"))
    for _ in range(6):
        world.exit(POD, 1)
        world.come_back()
        assert world.tarragon["state"] == "Running"
        world.pass_time(600)

    world.exit(POD, 1, message="ValueError: no such data")
    world.settle_and_wait()

    assert world.tarragon["state"] == "Failed"
    words = "Job has reached the specified backoff limit: launcher-0: exit code 1: ValueError: no such data"
    assert (world.tarragon["reason"], world.tarragon["message"]) == ("BackoffLimitExceeded", words)
    assert POD in world.pods


def test_a_v1_launcher_has_one_chance() -> None:
    world = running(of(V1))
    world.exit(POD, 1)
    world.settle_and_wait()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "launcher-0 failed with exit code 1"


def test_a_crashed_worker_of_v1_fails_the_job_and_is_named() -> None:
    world = running(of(V1))
    world.exit(POD, 255)
    world.settle()
    world.exit(WORKER_1, 137, reason="OOMKilled")
    world.settle_and_wait()

    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "worker-1 failed with exit code 137 (OOMKilled)"


@pytest.mark.parametrize("generation", [V1ALPHA1, V1ALPHA2])
def test_a_worker_that_its_kubelet_restarts_takes_its_launcher_along_and_counts(generation: str) -> None:
    world = running(of(generation))
    world.restart_in_place(WORKER_1, 1)
    world.make_ready(WORKER_1)
    world.exit(POD, 255)
    world.come_back()

    assert world.tarragon["state"] == "Running"
    assert (world.counted(POD), world.counted(WORKER_1)) == (0, 1)
    assert (world.created[POD], world.created[WORKER_1]) == (2, 1)


@pytest.mark.parametrize("generation", [V1ALPHA1, V1ALPHA2])
@pytest.mark.parametrize("limit", [1, 2])
def test_workers_that_their_kubelets_restart_end_a_job_when_its_launcher_would_have_failed_too_often(
    generation: str, limit: int
) -> None:
    """They were a StatefulSet's, and each restart cost the batch Job one launcher; the limit was for these."""
    world = running(of(generation, backoffLimit=limit))
    for restarts in range(1, limit + 1):
        world.restart_in_place(WORKER_1, restarts)
        world.make_ready(WORKER_1)
        world.exit(POD, 255)
        world.come_back()
        assert world.tarragon["state"] == "Running", restarts
        world.pass_time(600)

    world.restart_in_place(WORKER_1, limit + 1)
    world.settle()
    assert world.tarragon["reason"] == "BackoffLimitExceeded"


def test_a_worker_of_v2beta1_that_crashes_again_and_again_ends_the_job() -> None:
    world = running(of(V2BETA1, backoffLimit=2))
    for _ in range(3):
        world.exit(WORKER_1, 139)
        world.exit(POD, 255)
        world.come_back()
        world.pass_time(600)

    assert world.tarragon["reason"] == "BackoffLimitExceeded"
    assert (world.counted(POD), world.counted(WORKER_1)) == (0, 3)


@pytest.mark.parametrize("end", ["evicted", "crashed"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_elastic_job_goes_on_without_a_worker_and_gets_it_back(generation: str, end: str) -> None:
    job = of(generation)
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 2}
    world = running(job)
    if end == "evicted":
        world.disrupt(WORKER_1)
    else:
        world.exit(WORKER_1, 139)
    world.come_back()
    world.pass_time(3600)
    world.settle()

    assert (world.created[POD], world.created[WORKER_1]) == (1, 2)
    assert world.tarragon["state"] == "Running"
