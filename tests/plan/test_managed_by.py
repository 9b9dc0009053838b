from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import framework_of
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.job.phase import Phase
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.reconcile.manager_on_record import needs_adoption
from tarragon.plan.view.actions import Actions
from tests.frameworks.listed_jobs import cluster, item, listed
from tests.frameworks.mpi_jobs import V1ALPHA1, V1ALPHA2, V2BETA1
from tests.frameworks.mpi_jobs import of as of_mpi
from tests.plan.test_mpi_life import MpiWorld
from tests.plan.world import World, manifest

BESIDE_ANOTHER = OperatorSettings(other_managers={"TFJob": "training-operator (Deployment kubeflow/training-operator)"})


def job(annotations: Mapping[str, str], **run_policy: Any) -> dict[str, Any]:
    body = manifest({"Worker": 1}, run_policy=run_policy)
    body["metadata"]["annotations"] = dict(annotations)
    return body


@pytest.mark.parametrize("managed_by", [None, "kubeflow.org/training-operator"])
def test_a_job_that_another_operator_keeps_is_not_even_marked_and_says_whose_it_is(managed_by: str | None) -> None:
    world = World(job({}, **({"managedBy": managed_by} if managed_by else {})), BESIDE_ANOTHER)
    step = world.decide()

    (event,) = step.events
    assert step == Actions(events=[event])
    assert (event.reason, event.type, event.is_lasting_state) == ("LeftToOtherOperator", "Normal", True)
    assert event.message == (
        "left to training-operator (Deployment kubeflow/training-operator); "
        'set the annotation tarragon.dev/adopt: "true" to hand it over'
    )


@pytest.mark.parametrize(
    "ours",
    [
        job({"tarragon.dev/adopt": "true"}),
        job({}, managedBy="tarragon.dev/tarragon"),
    ],
)
def test_a_job_that_was_given_to_us_is_kept_beside_another_operator(ours: dict[str, Any]) -> None:
    world = World(ours, BESIDE_ANOTHER)

    assert world.decide().status_patch is not None


def test_a_job_that_was_ours_before_another_operator_came_stays_ours() -> None:
    world = World(job({}), OperatorSettings())
    world.settle()
    assert GENERATION_ANNOTATION not in world.job["metadata"].get("annotations", {}), "its status tells"
    before = world.decide()
    world.settings = BESIDE_ANOTHER

    assert world.decide() == before


def test_an_operator_of_other_kinds_is_nothing_to_us() -> None:
    world = World(job({}), OperatorSettings(other_managers={"MPIJob": "mpi-operator (Lease default/mpi-operator)"}))

    assert world.decide().status_patch is not None


def of_2018(**status: Any) -> dict[str, Any]:
    """With a status as the operators before v1alpha2 wrote it."""
    return {**cluster(ps=1, workers=1, RuntimeId="zz9z"), "status": {"reason": "", "controlPaused": False, **status}}


@pytest.mark.parametrize("asked", ["all", "one by one"])
@pytest.mark.parametrize("phase", ["CleanUp", "Done", "Failed"])
@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
def test_a_job_that_an_operator_without_conditions_has_ended_is_not_run_again(
    asked: str, phase: str, state: str
) -> None:
    master = {"tf_replica_type": "MASTER", "state": state, "ReplicasStates": {state: 1}}
    body = of_2018(phase=phase, state=state, reason="as it was", replicaStatuses=[master])
    if asked == "one by one":
        body["metadata"]["annotations"] = {"tarragon.dev/adopt": "true"}
    world = World(body, OperatorSettings(adopts_jobs=asked == "all"))
    world.settle()
    world.admit()
    world.settle()

    assert not world.created
    assert world.tarragon["state"] == state
    assert {name: value for name, value in world.job["status"].items() if name != "tarragon"} == body["status"]


def test_of_a_job_that_an_operator_without_conditions_has_ended_nothing_is_said_and_nobody_is_asked() -> None:
    world = World(of_2018(phase="Done", state="Succeeded"))

    assert world.decide() == Actions(events=[])
    assert not needs_adoption(world.observed().object)
    world = World(of_2018(phase="Running", state="Running"))
    assert [event.reason for event in world.decide().events] == ["LeftToOtherOperator"]
    assert needs_adoption(world.observed().object)


def test_a_job_of_ours_without_conditions_whose_record_was_dropped_stays_ended() -> None:
    world = World(cluster(ps=1, workers=1, runPolicy={"cleanPodPolicy": "All"}))
    world.settle()
    world.admit()
    world.settle()
    world.exit(next(name for name in world.pods if "-master-" in name), 0)
    world.settle()
    made = dict(world.created)

    world.patch_job({"status": {"tarragon": None}})
    world.settle()
    world.admit()
    world.settle()
    assert (world.created, world.pods, world.tarragon["state"]) == (made, {}, "Succeeded")


def test_a_job_without_conditions_that_made_no_sense_stays_failed_when_its_record_is_dropped() -> None:
    world = World(listed(item("WORKER")))
    world.settle()
    assert (world.job["status"]["phase"], world.job["status"]["state"]) == ("Failed", "Failed")

    world.patch_job({"status": {"tarragon": None}})
    world.settle()
    assert world.status.phase.is_final
    assert not world.created


def given(asked: str, body: dict[str, Any]) -> World:
    """To us, in one of the ways there are."""
    if asked == "one by one":
        body["metadata"]["annotations"] = {"tarragon.dev/adopt": "true"}
    if asked == "by name":
        body["spec"]["runPolicy"] = {"managedBy": "tarragon.dev/tarragon"}
    return World(body, OperatorSettings(adopts_jobs=asked == "all"))


def pod_of(owner: dict[str, Any], name: str = "j-master-zz9z-0-q7k2p", phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n1", "ownerReferences": [{**owner, "controller": True}]}
    stamps = {"uid": f"u-{name}", "resourceVersion": "1", "creationTimestamp": "2026-11-21T10:00:00Z"}
    spec = {"containers": [{"name": "tensorflow", "image": "i"}], "nodeName": "node-a"}
    return {"metadata": {**metadata, **stamps}, "spec": spec, "status": {"phase": phase}}


BATCH_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j-master-zz9z-0", "uid": "batch-1"}
MPIJOB = {"apiVersion": V2BETA1, "kind": "MPIJob", "name": "pi", "uid": "job-1"}
WAYS = pytest.mark.parametrize("asked", ["all", "one by one", "by name"])


def assert_left_to_batch_jobs(world: World) -> None:
    step = world.decide()
    (event,) = step.events
    assert step == Actions(events=[event])
    assert (event.reason, event.is_lasting_state) == ("LeftToOtherOperator", True)
    assert event.message == (
        "left to its batch Jobs, which would run every replica a second time beside Tarragon's pods; wait until they "
        "end, or delete them and the job and submit the job again"
    )


@WAYS
def test_a_job_of_2018_whose_pods_belong_to_batch_jobs_is_not_taken_over_while_there_are_any(asked: str) -> None:
    world = given(asked, of_2018(phase="Running", state="Running"))
    world.pods["j-master-zz9z-0-q7k2p"] = pod_of(BATCH_JOB)
    assert_left_to_batch_jobs(world)

    world.pods = {}
    assert world.decide().metadata_patch is not None


@WAYS
def test_a_job_of_2018_is_taken_over_when_the_pods_are_its_own_or_those_of_others(asked: str) -> None:
    world = given(asked, of_2018(phase="Running", state="Running"))
    world.pods["k-master-zz9z-0-q7k2p"] = pod_of(BATCH_JOB, "k-master-zz9z-0-q7k2p")
    world.pods["j-master-zz9z-0-abcde"] = pod_of(
        {"apiVersion": "kubeflow.org/v1alpha1", "kind": "TFJob", "name": "j", "uid": "job-1"}, "j-master-zz9z-0-abcde"
    )

    assert world.decide().metadata_patch is not None


@WAYS
@pytest.mark.parametrize("status", [{"phase": "Running", "state": "Running"}, {"phase": "Creating"}])
def test_a_job_of_mlkube_that_was_begun_is_left_to_its_batch_jobs(asked: str, status: dict[str, str]) -> None:
    world = given(asked, of_2017(**status))
    world.framework = of_mlkube()
    assert_left_to_batch_jobs(world)


@WAYS
@pytest.mark.parametrize("status", [{}, {"phase": "Done", "state": "Failed"}])
def test_a_job_of_mlkube_that_nobody_has_begun_or_that_is_over_is_ours(asked: str, status: dict[str, str]) -> None:
    world = given(asked, of_2017(**status))
    world.framework = of_mlkube()

    assert world.decide().metadata_patch is not None
    world.settle()
    assert not world.pods


@WAYS
@pytest.mark.parametrize("generation", [V1ALPHA1, V1ALPHA2, V2BETA1])
def test_an_mpijob_is_left_to_the_batch_job_of_its_launcher_although_its_workers_are_its_own(
    asked: str, generation: str
) -> None:
    conditions = [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]
    status = {"launcherStatus": "Active"} if generation == V1ALPHA1 else {"conditions": conditions}
    job = {**of_mpi(generation), "status": status}
    job["metadata"]["namespace"] = "n1"
    world = given(asked, job)
    world.framework = MPI
    owner = {"apiVersion": generation, "kind": "MPIJob", "name": "pi", "uid": job["metadata"].get("uid", "job-1")}
    world.pods["pi-worker-0"] = pod_of(owner, "pi-worker-0")

    assert_left_to_batch_jobs(world)


def suspended_mpijob(*, spec: bool, status: bool) -> dict[str, Any]:
    """As mpi-operator leaves it: the batch Job of the launcher is suspended, and the workers are deleted."""
    found = of_mpi(V2BETA1)
    found["metadata"]["namespace"] = "n1"
    found["spec"]["runPolicy"] = {"suspend": spec}
    times = {"lastUpdateTime": "2026-11-20T08:00:00Z", "lastTransitionTime": "2026-11-20T08:00:00Z"}
    conditions = [
        {"type": "Created", "status": "True", "reason": "MPIJobCreated", "message": "", **times},
        {"type": "Running", "status": "False", "reason": "MPIJobSuspended", "message": "", **times},
        {"type": "Suspended", "status": str(status), "reason": "MPIJobSuspended", "message": "", **times},
    ]
    return {**found, "status": {"conditions": conditions, "replicaStatuses": {"Launcher": {}, "Worker": {}}}}


@pytest.mark.parametrize("asked", ["all", "one by one"])
def test_an_mpijob_that_mpi_operator_has_suspended_is_taken_over_and_resumed(asked: str) -> None:
    world = MpiWorld(given(asked, suspended_mpijob(spec=True, status=True)).job)
    world.settings = OperatorSettings(adopts_jobs=asked == "all")
    world.pods["pi-worker-1"] = pod_of(MPIJOB, "pi-worker-1", phase="Failed")

    world.settle()
    assert (world.status.phase, world.pods) == (Phase.SUSPENDED, {})

    world.patch_job({"spec": {"runPolicy": {"suspend": False}}})
    world.settle()
    world.admit(Launcher=1, Worker=2)
    world.settle()
    assert sorted(world.pods) == ["pi-launcher", "pi-worker-0", "pi-worker-1"]


@pytest.mark.parametrize(("spec", "status"), [(True, False), (False, True)])
def test_an_mpijob_whose_suspension_or_resumption_is_under_way_is_left_to_its_batch_job(
    *, spec: bool, status: bool
) -> None:
    world = given("all", suspended_mpijob(spec=spec, status=status))
    world.framework = MPI

    assert_left_to_batch_jobs(world)


def test_an_mpijob_that_mpi_operator_has_suspended_stays_its_own_until_somebody_asks() -> None:
    world = World(suspended_mpijob(spec=True, status=True))
    world.framework = MPI

    assert [event.reason for event in world.decide().events] == ["LeftToOtherOperator"]
    assert needs_adoption(world.observed().object)


def of_2017(**status: str) -> dict[str, Any]:
    body = {**listed(RuntimeId="zz9z"), "apiVersion": "mlkube.io/v1beta1", "kind": "TfJob"}
    return {**body, "status": status} if status else body


def of_mlkube() -> Framework:
    found = framework_of("mlkube.io/v1beta1", "TfJob")
    assert found is not None
    return found
