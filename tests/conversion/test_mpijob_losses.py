"""What MPIJobs lose in a conversion, and what becomes of the fields that the new generation lacks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tarragon.frameworks.mpi.conversion.convert import convert
from tarragon.frameworks.mpi.conversion.generations import NEWEST as V2BETA1
from tarragon.frameworks.mpi.fields import V1, V1ALPHA1, V1ALPHA2
from tests.frameworks.mpi_jobs import mpijob, short_job, template

GPU = "nvidia.com/gpu"
LAUNCHER, WORKER = "spec.mpiReplicaSpecs.Launcher", "spec.mpiReplicaSpecs.Worker"


def launcher(manifest: Any) -> Any:
    return manifest["spec"]["mpiReplicaSpecs"]["Launcher"]


def worker(manifest: Any) -> Any:
    return manifest["spec"]["mpiReplicaSpecs"]["Worker"]


def losses(manifest: Any, target: str) -> dict[str, str]:
    """The losses by topic, without remedies."""
    made = convert(manifest, manifest["apiVersion"], target)
    return {loss.topic: f"{loss.problem.path}: {loss.problem.message}" for loss in made.losses}


BUSY = template(command=["serve"])
SIDECAR: Any = {"spec": {"containers": [{"name": "mpi", "image": "a"}, {"name": "side", "image": "b"}]}}
ON_GPU = template(command=["mpirun"], resources={"limits": {GPU: 1}})

WITH_RESOURCES = template(command=["mpirun"], env=[], resources={"requests": {"cpu": 1}})


@pytest.mark.parametrize(
    ("manifest", "target", "topic", "message"),
    [
        (
            mpijob(V1),
            V2BETA1,
            "transport",
            (
                f"{LAUNCHER}: in {V2BETA1} mpirun reaches the workers by SSH, no longer by exec: "
                "images without sshd can't run"
            ),
        ),
        (
            mpijob(V1, specs={"Worker": {"template": BUSY}}),
            V2BETA1,
            "transport",
            f"{WORKER}.template: its command runs instead of sshd, which {V2BETA1} needs",
        ),
        (
            mpijob(),
            V1,
            "transport",
            (
                f"{LAUNCHER}: in {V1} mpirun reaches the workers by exec through the API server, no "
                "longer by SSH, and there are no keys"
            ),
        ),
        (
            mpijob(sshAuthMountPath="/keys"),
            V1ALPHA2,
            "sshAuthMountPath",
            f"spec.sshAuthMountPath: {V1ALPHA2} does not support it: no keys are mounted",
        ),
        (
            mpijob(mpiImplementation="Intel"),
            V1,
            "mpiImplementation",
            f"spec.mpiImplementation: {V1} does not support it: /etc/mpi/hostfile is that of OpenMPI",
        ),
        (
            mpijob(launcherCreationPolicy="AtStartup"),
            V1,
            "launcherCreationPolicy",
            (
                f"spec.launcherCreationPolicy: {V1} does not support it: the launcher is created once all workers are "
                "ready"
            ),
        ),
        (
            mpijob(runLauncherAsWorker=True),
            V1,
            "runLauncherAsWorker",
            f"spec.runLauncherAsWorker: {V1} does not support it: ranks run only in the workers",
        ),
        (
            mpijob(specs={"Launcher": {"template": ON_GPU}}),
            V1,
            "runLauncherAsWorker",
            f"{LAUNCHER}: in {V1} ranks run in the launcher too, because it has a GPU",
        ),
        (
            mpijob(V1, mainContainer="side", specs={"Worker": {"template": SIDECAR}}),
            V2BETA1,
            "mainContainer",
            f"spec.mainContainer: {V2BETA1} does not support it: the ranks run in mpi, the first container",
        ),
        (
            mpijob(V1, specs={"Launcher": {"template": WITH_RESOURCES}}),
            V1ALPHA1,
            "templates",
            (
                f"{LAUNCHER}.template: {V1ALPHA1} has one template for all pods: containers[0].env, "
                "containers[0].resources.requests of the Launcher can't be kept"
            ),
        ),
        (
            mpijob(V1, specs={"Worker": {"template": BUSY}}),
            V1ALPHA1,
            "templates",
            (
                f"{WORKER}.template: {V1ALPHA1} has one template for all pods: containers[0].command of "
                "the Worker can't be kept"
            ),
        ),
        (
            mpijob(V1, specs={"Launcher": {"restartPolicy": "ExitCode"}}),
            V2BETA1,
            "restarts",
            (
                f"{LAUNCHER}: its exit code decides whether a failure is final; in {V2BETA1} it is "
                "restarted after every failure"
            ),
        ),
        (
            mpijob(V1ALPHA2),
            V2BETA1,
            "restarts",
            (
                f"{WORKER}: it is restarted after every end, even success; in {V2BETA1} it is restarted "
                "after every failure"
            ),
        ),
        (
            short_job(replicas=2),
            V2BETA1,
            "restarts",
            (
                f"spec: Worker: it is restarted after every end, even success; in {V2BETA1} it is restarted after "
                "every failure"
            ),
        ),
        (
            mpijob(V1, specs={"Launcher": {"restartPolicy": "OnFailure"}}),
            V1ALPHA2,
            "backoffLimit",
            f"spec.runPolicy.backoffLimit: no number of failures ends the job; in {V1ALPHA2} failure 7 does",
        ),
    ],
)
def test_a_loss_is_named_with_what_happens_instead(
    manifest: dict[str, Any], target: str, topic: str, message: str
) -> None:
    assert losses(manifest, target)[topic] == message


@pytest.mark.parametrize("manifest", [short_job(gpus=4), mpijob(V1ALPHA2), mpijob(V1ALPHA2, backoffLimit=2)])
def test_a_job_that_uses_exec_loses_nothing_in_v1(manifest: dict[str, Any]) -> None:
    assert losses(manifest, V1) == {}


def test_the_number_of_gpus_becomes_workers_with_slots_and_limits() -> None:
    made = convert(short_job(GPUs=16, gpusPerNode=8), V1ALPHA1, V1).manifest

    [container] = worker(made)["template"]["spec"]["containers"]
    assert made["spec"]["slotsPerWorker"] == 8
    assert worker(made)["replicas"] == 2
    assert container == {"name": "main", "image": "mpi", "resources": {"limits": {GPU: 8}}}
    assert launcher(made)["template"] == template(command=["mpirun", "pi"])


def test_defaults_that_differ_are_written_out() -> None:
    made = convert(short_job(replicas=1), V1ALPHA1, V1).manifest

    assert made["spec"]["runPolicy"] == {"cleanPodPolicy": "All", "backoffLimit": 7}
    assert launcher(made)["restartPolicy"] == "OnFailure"
    assert worker(made)["restartPolicy"] == "Always"


def test_a_backoff_limit_keeps_its_meaning_where_restarts_are_counted_instead_of_failures() -> None:
    old = mpijob(runPolicy={"backoffLimit": 3})

    there = convert(old, V2BETA1, V1)

    assert there.manifest["spec"]["runPolicy"]["backoffLimit"] == 4
    assert "backoffLimit" not in losses(old, V1)


def test_a_launcher_that_is_never_restarted_has_a_limit_of_no_failures_as_a_batch_job() -> None:
    made = convert(mpijob(V1), V1, V2BETA1).manifest

    assert made["spec"]["runPolicy"]["backoffLimit"] == 0
    assert launcher(made)["restartPolicy"] == "Never"


def test_a_launcher_on_the_master_gets_its_toleration_and_affinity() -> None:
    made = convert(short_job(replicas=1, launcherOnMaster=True), V1ALPHA1, V2BETA1).manifest

    spec = launcher(made)["template"]["spec"]
    assert {each["key"] for each in spec["tolerations"]} >= {"node-role.kubernetes.io/master"}
    assert "nodeAffinity" in spec["affinity"]
    assert "tolerations" not in worker(made)["template"]["spec"]


def test_workers_that_sleep_are_given_sshd_instead() -> None:
    job = mpijob(V1, specs={"Worker": {"template": template(command=["sleep", "365d"])}})

    made = convert(job, V1, V2BETA1).manifest

    assert worker(made)["template"] == template()
    assert convert(made, V2BETA1, V1).manifest == job


def test_a_number_of_workers_that_is_edited_elsewhere_is_a_number_of_gpus_again() -> None:
    edited: Any = copy.deepcopy(convert(short_job(GPUs=16, gpusPerNode=8), V1ALPHA1, V1).manifest)
    worker(edited)["replicas"] = 3

    back = convert(edited, V1, V1ALPHA1)

    assert back.manifest == short_job(GPUs=24, gpusPerNode=8)
    assert back.losses == ()


@pytest.mark.parametrize("size", [{"gpus": 4}, {"replicas": 2}])
def test_removed_workers_stay_removed(size: dict[str, Any]) -> None:
    edited: Any = copy.deepcopy(convert(short_job(**size), V1ALPHA1, V1).manifest)
    del edited["spec"]["mpiReplicaSpecs"]["Worker"]

    back = convert(edited, V1, V1ALPHA1).manifest

    assert back["spec"]["replicas"] == 0
    assert "gpus" not in back["spec"]


def test_a_job_scaled_by_kubectl_is_converted_with_its_new_size_and_can_be_scaled_again() -> None:
    scaled = short_job(gpus=4, mpiReplicaSpecs={"Worker": {"replicas": 5}})

    made: Any = copy.deepcopy(convert(scaled, V1ALPHA1, V1).manifest)
    assert worker(made)["replicas"] == 5
    assert convert(made, V1, V1ALPHA1).manifest == scaled

    worker(made)["replicas"] = 6
    again = convert(made, V1, V1ALPHA1).manifest
    assert again == short_job(gpus=4, mpiReplicaSpecs={"Worker": {"replicas": 6}})


def test_a_program_that_is_edited_elsewhere_is_that_of_the_only_template() -> None:
    edited: Any = copy.deepcopy(convert(short_job(gpus=4), V1ALPHA1, V1).manifest)
    launcher(edited)["template"] = template(command=["mpirun", "-v"])

    spec = convert(edited, V1, V1ALPHA1).manifest["spec"]

    assert spec["template"] == template(command=["mpirun", "-v"])
    assert spec["gpus"] == 4
    assert "replicas" not in spec
