"""The life of MPIJobs in an operator on the embedded API: starts, sizes, losses, ends."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.owned_objects import MOUNTED_ANNOTATION
from tarragon.kube.core import PODS, SECRETS
from tarragon.kube.meta import Key
from tests.frameworks.mpi_jobs import EXEC, V1, V1ALPHA1, V1ALPHA2, V2BETA1, of, short_job, template
from tests.operator.mpi_stage import LAUNCHER, MpiStage, job
from tests.operator.stage import Stage

WORKERS = ("pi-worker-0", "pi-worker-1")
GENERATIONS = (*EXEC, V2BETA1)
BOUNDS = {"minReplicas": 1, "maxReplicas": 3}


@pytest.fixture
async def mpi(stage: Stage) -> MpiStage:
    found = MpiStage(stage)
    await found.prepare()
    return found


def cpu(manifest: dict[str, Any]) -> dict[str, Any]:
    """The job of v1alpha1 without GPUs, which the node has none of."""
    spec = manifest["spec"]
    if "gpus" not in spec:
        return manifest
    sizes = {"replicas": spec["gpus"], "template": spec["template"]}
    return {**manifest, "spec": sizes}


async def started(mpi: MpiStage, manifest: dict[str, Any]) -> None:
    await mpi.submit(manifest)
    await mpi.world.until(lambda: set(WORKERS) <= set(mpi.stage.pods()))
    await mpi.runs(*WORKERS)
    await mpi.world.until(lambda: LAUNCHER in mpi.stage.pods())
    await mpi.runs(LAUNCHER)
    await mpi.until_state("Running")


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_a_job_of_each_generation_runs_to_its_end(mpi: MpiStage, generation: str) -> None:
    await started(mpi, cpu(of(generation)))

    await mpi.ends(LAUNCHER, 0)
    await mpi.until_state("Succeeded")
    assert LAUNCHER in mpi.stage.pods()


@pytest.mark.parametrize("generation", EXEC)
async def test_an_older_launcher_is_created_once_all_workers_are_ready(mpi: MpiStage, generation: str) -> None:
    await mpi.submit(cpu(of(generation)))
    await mpi.stage.until_pods(*WORKERS)
    await mpi.runs(WORKERS[0])
    await mpi.runs(WORKERS[1], ready=False)
    await mpi.world.until(lambda: "pi-worker-1" in mpi.config["discover_hosts.sh"])
    assert set(mpi.stage.pods()) == set(WORKERS)

    await mpi.runs(WORKERS[1])
    await mpi.stage.until_pods(*WORKERS, LAUNCHER)


async def test_a_launcher_of_v2beta1_is_created_with_its_workers(mpi: MpiStage) -> None:
    await mpi.submit(job())

    await mpi.stage.until_pods(*WORKERS, LAUNCHER)
    assert mpi.named("secrets") >= {"pi-ssh"}
    assert mpi.named("services") >= {"pi"}


async def test_a_job_runs_once_its_launcher_and_all_its_workers_do(mpi: MpiStage) -> None:
    await mpi.submit(job())
    await mpi.stage.until_pods(*WORKERS, LAUNCHER)
    await mpi.runs(LAUNCHER, WORKERS[0])
    await mpi.world.until(lambda: "pi-worker-0" in mpi.config["discover_hosts.sh"])
    assert mpi.state != "Running"

    await mpi.runs(WORKERS[1])
    await mpi.until_state("Running")


async def test_the_status_of_v1alpha1_has_the_launchers_state(mpi: MpiStage) -> None:
    await started(mpi, cpu(of(V1ALPHA1)))
    await mpi.world.until(lambda: mpi.status.get("workerReplicas") == 2)
    assert mpi.status["launcherStatus"] == "Active"

    await mpi.ends(LAUNCHER, 0)
    await mpi.world.until(lambda: mpi.status.get("launcherStatus") == "Succeeded")
    assert mpi.status["completionTime"]


@pytest.mark.parametrize(
    ("manifest", "left"),
    [
        (cpu(of(V1ALPHA1)), {LAUNCHER}),
        (of(V2BETA1), {LAUNCHER, *WORKERS}),
        (job(runPolicy={"cleanPodPolicy": "Running"}), {LAUNCHER}),
        (job(V1, cleanPodPolicy="All"), {LAUNCHER}),
    ],
)
async def test_a_finished_job_keeps_its_launcher_for_the_logs_and_its_workers_as_its_policy_says(
    mpi: MpiStage, manifest: dict[str, Any], left: set[str]
) -> None:
    await started(mpi, manifest)
    await mpi.ends(LAUNCHER, 0)
    await mpi.until_state("Succeeded")

    def remaining() -> set[str]:
        return {name for name, pod in mpi.stage.pods().items() if "deletionTimestamp" not in pod["metadata"]}

    await mpi.world.until(lambda: remaining() == left)


# ------------------------------------------------------------------------------------------------ failures


async def test_a_launcher_that_was_a_batch_job_is_started_again_until_its_failures_exceed_the_limit(
    mpi: MpiStage,
) -> None:
    await started(mpi, job(V1ALPHA2, runPolicy={"backoffLimit": 1}))
    await mpi.ends(LAUNCHER, 1)
    await mpi.world.until(lambda: mpi.stage.made().count(LAUNCHER) == 2)
    await mpi.runs(LAUNCHER)

    await mpi.ends(LAUNCHER, 1)
    await mpi.until_state("Failed")
    assert [each["reason"] for each in mpi.status["conditions"] if each["type"] == "Failed"] == ["BackoffLimitExceeded"]


async def test_a_launcher_of_v1_is_not_started_again_by_default(mpi: MpiStage) -> None:
    await started(mpi, job(V1))

    await mpi.ends(LAUNCHER, 3)
    await mpi.until_state("Failed")
    (failed,) = [each for each in mpi.status["conditions"] if each["type"] == "Failed"]
    assert "exit code 3" in failed["message"]


async def test_a_launcher_that_ends_because_a_worker_was_lost_starts_again_and_nothing_is_counted(
    mpi: MpiStage,
) -> None:
    await started(mpi, job(V2BETA1, runPolicy={"backoffLimit": 0}, launcherCreationPolicy="WaitForWorkersReady"))

    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    await mpi.world.client.patch(PODS, Key("default", WORKERS[0]), {"status": evicted}, subresource="status")
    await mpi.ends(LAUNCHER, 1)
    await mpi.world.until(lambda: mpi.stage.made().count(WORKERS[0]) == 2)
    await mpi.runs(WORKERS[0])
    await mpi.world.until(lambda: mpi.stage.made().count(LAUNCHER) == 2)
    await mpi.runs(LAUNCHER)
    await mpi.until_state("Running")

    await mpi.ends(LAUNCHER, 0)
    await mpi.until_state("Succeeded")


async def test_a_worker_that_fails_fails_a_job_that_never_restarts_and_is_named(mpi: MpiStage) -> None:
    await started(mpi, job(V1))

    await mpi.ends(WORKERS[1], 9)
    await mpi.until_state("Failed")
    (failed,) = [each for each in mpi.status["conditions"] if each["type"] == "Failed"]
    assert failed["message"].startswith("worker-1 failed with exit code 9")


async def test_a_key_that_is_gone_is_made_again_for_pods_that_wait_for_it(mpi: MpiStage) -> None:
    """As when the Secret of an earlier job of that name is collected just after the pods were created."""
    await mpi.submit(job(V2BETA1))
    await mpi.stage.until_pods(*WORKERS, LAUNCHER)
    await mpi.world.client.delete(SECRETS, Key("default", "pi-ssh"))
    await mpi.world.until(lambda: not mpi.named("secrets"))

    await mpi.waits_for_volumes("pi-worker-0")
    await mpi.world.until(lambda: mpi.named("secrets") == {"pi-ssh"})


# --------------------------------------------------------------------------------------------------- sizes


async def test_the_host_file_and_the_role_follow_the_size(mpi: MpiStage) -> None:
    await mpi.submit(job(V1, elasticPolicy=BOUNDS))
    await mpi.stage.until_pods(*WORKERS)
    await mpi.runs(*WORKERS)
    assert mpi.config["hostfile"].split("\n")[:2] == ["pi-worker-0 slots=1", "pi-worker-1 slots=1"]

    await mpi.change(mpiReplicaSpecs={"Worker": {"replicas": 3}})
    await mpi.world.until(lambda: "pi-worker-2 slots=1" in mpi.config["hostfile"])
    await mpi.world.until(lambda: "pi-worker-2" in mpi.stage.pods())
    await mpi.runs("pi-worker-2")
    await mpi.world.until(lambda: "pi-worker-2" in mpi.config["discover_hosts.sh"])


async def test_workers_that_start_before_their_launcher_change_no_file_one_by_one(mpi: MpiStage) -> None:
    await mpi.submit(job(V1))
    await mpi.stage.until_pods(*WORKERS)
    created = mpi.config_version
    await mpi.runs(*WORKERS)
    await mpi.stage.until_pods(*WORKERS, LAUNCHER)
    await mpi.runs(LAUNCHER)
    await mpi.until_state("Running")

    assert mpi.config_version == created
    assert mpi.config["discover_hosts.sh"] == "#!/bin/sh\necho pi-worker-0:1\necho pi-worker-1:1\n"


async def test_workers_that_leave_are_hosts_no_more_before_they_are_gone(mpi: MpiStage) -> None:
    await started(mpi, job(V2BETA1, elasticPolicy=BOUNDS))
    await mpi.world.until(lambda: "pi-worker-1" in mpi.config["discover_hosts.sh"])

    await mpi.change(mpiReplicaSpecs={"Worker": {"replicas": 1}})
    await mpi.world.until(lambda: "pi-worker-1" not in mpi.config["discover_hosts.sh"])
    assert "pi-worker-1" in mpi.stage.pods()
    assert LAUNCHER in mpi.stage.pods()


async def test_an_elastic_launcher_sees_new_hosts_at_once_for_its_pod_changes_after_them(mpi: MpiStage) -> None:
    await started(mpi, job(V2BETA1, elasticPolicy={"minReplicas": 1, "maxReplicas": 2}))

    def digest() -> str:
        return str(mpi.stage.pods()[LAUNCHER]["metadata"].get("annotations", {}).get(MOUNTED_ANNOTATION, ""))

    await mpi.world.until(lambda: "pi-worker-1" in mpi.config["discover_hosts.sh"] and bool(digest()))
    before = digest()
    await mpi.change(elasticPolicy=BOUNDS, mpiReplicaSpecs={"Worker": {"replicas": 3}})
    await mpi.world.until(lambda: "pi-worker-2" in mpi.config["hostfile"] and digest() != before)


async def test_a_launcher_of_fixed_size_is_not_annotated(mpi: MpiStage) -> None:
    await started(mpi, job(V2BETA1))
    await mpi.world.until(lambda: "pi-worker-1" in mpi.config["discover_hosts.sh"])
    await mpi.ends(LAUNCHER, 0)
    await mpi.until_state("Succeeded")

    assert MOUNTED_ANNOTATION not in mpi.stage.pods()[LAUNCHER]["metadata"].get("annotations", {})


async def test_suspension_ends_all_pods_and_resumption_starts_workers_first(mpi: MpiStage) -> None:
    await started(mpi, job(launcherCreationPolicy="WaitForWorkersReady"))
    await mpi.change(runPolicy={"suspend": True})
    await mpi.until_state("Suspended")
    await mpi.world.until(lambda: all("deletionTimestamp" in each["metadata"] for each in mpi.stage.pods().values()))
    await mpi.stage.end_pods()
    await mpi.stage.until_pods()

    await mpi.change(runPolicy={"suspend": False})
    await mpi.stage.until_pods(*WORKERS)
    await mpi.runs(*WORKERS)
    await mpi.stage.until_pods(*WORKERS, LAUNCHER)
    await mpi.runs(LAUNCHER)
    await mpi.until_state("Running")


async def test_workers_share_the_fewest_nodes_and_the_launcher_needs_no_gpu(mpi: MpiStage) -> None:
    for name in ("gpu-a", "gpu-b"):
        await mpi.stage.node(name, **{"nvidia.com/gpu": "4", "cpu": "4"})
    gpu = template(name="worker", resources={"limits": {"nvidia.com/gpu": 1, "cpu": 1}})
    launcher = template(name="launcher", command=["mpirun"], resources={"requests": {"cpu": 2}})
    specs = {"Worker": {"template": gpu}, "Launcher": {"template": launcher}}
    await mpi.submit(job(workers=4, specs=specs))

    await mpi.world.until(lambda: len(mpi.stage.pods()) == 5)
    nodes = {name: pod["spec"]["nodeName"] for name, pod in mpi.stage.pods().items()}
    assert {node for name, node in nodes.items() if "worker" in name} == {"gpu-a"}
    assert nodes[LAUNCHER] == "n"


async def test_a_gang_of_launcher_and_workers_starts_whole_or_not_at_all(mpi: MpiStage) -> None:
    half = template(name="worker", resources={"limits": {"cpu": 4}})
    launcher = template(name="launcher", command=["mpirun"], resources={"requests": {"cpu": 1}})
    await mpi.submit(job(workers=2, specs={"Worker": {"template": half}, "Launcher": {"template": launcher}}))
    await mpi.world.until(lambda: mpi.state == "Waiting")
    assert not mpi.stage.pods()

    await mpi.stage.node("m", cpu="1")
    await mpi.stage.until_pods(*WORKERS, LAUNCHER)
    assert mpi.stage.pods()[LAUNCHER]["spec"]["nodeName"] == "m"


async def test_a_job_without_workers_is_a_launcher(mpi: MpiStage) -> None:
    await mpi.submit(short_job(pod=template(command=["mpirun", "pi"])))
    await mpi.stage.until_pods(LAUNCHER)
    await mpi.runs(LAUNCHER)
    await mpi.until_state("Running")


async def test_a_job_whose_workers_are_named_like_those_of_a_tfjob_waits_and_says_why(mpi: MpiStage) -> None:
    await mpi.stage.submit("pi", Worker={"replicas": 1, "template": template(name="tensorflow", command=["train"])})
    await mpi.world.until(lambda: "pi-worker-0" in mpi.stage.pods())
    await mpi.submit(job(V1, workers=1))

    await mpi.world.until(lambda: bool(mpi.stage.events("NameTaken")))
    assert "already use the names pi-worker-0" in mpi.stage.events("NameTaken")[0]
