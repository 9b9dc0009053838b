from __future__ import annotations

from typing import Any

import pytest

from tarragon.cli.jobview.causes import ReplicaEnd, probable_causes
from tarragon.frameworks.jax.framework import JAX
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import CleanPodPolicy, Replica, RestartPolicy, SuccessPolicy
from tests.frameworks.jobs import job_of, problems, unknown, warnings
from tests.plan.world import World

WORKERS = ("dist-worker-0", "dist-worker-1", "dist-worker-2")
DIED = (
    "F1123 16:15:20.962862   11327 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died; see the other task logs for more details. "
    "absl::Status: "
)
"""What jaxlib 0.10.2 writes."""


def jaxjob(workers: int | None = 3, annotations: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """`fields`: of the replica spec."""
    container = {"name": "jax", "image": "train", "command": ["train"]}
    spec = {"template": {"spec": {"containers": [container]}}, **fields}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "dist", "namespace": "n1", "annotations": annotations or {}},
        "spec": {"jaxReplicaSpecs": {"Worker": spec if workers is None else {"replicas": workers, **spec}}},
    }


def with_containers(*containers: dict[str, Any]) -> dict[str, Any]:
    return jaxjob(2, template={"spec": {"containers": list(containers)}})


def started(body: dict[str, Any]) -> World:
    world = World(body)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def environment(pod: dict[str, Any], container: int = 0) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in pod["spec"]["containers"][container]["env"]}


def test_every_worker_gets_the_variables_of_training_operator_1_9() -> None:
    world = started(jaxjob())

    assert [environment(world.pods[name]) for name in WORKERS] == [
        {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": "6666",
            "COORDINATOR_ADDRESS": "dist-worker-0",
            "NUM_PROCESSES": "3",
            "PROCESS_ID": str(index),
        }
        for index in range(3)
    ]


def test_all_containers_get_them_with_the_port_of_the_main_one_and_the_users_are_replaced() -> None:
    main = {"name": "jax", "image": "a", "ports": [{"name": "jaxjob-port", "containerPort": 7777}]}
    sidecar = {"name": "log", "image": "b", "env": [{"name": "PROCESS_ID", "value": "9"}, {"name": "A", "value": "b"}]}
    pod = started(with_containers(main, sidecar)).pods["dist-worker-1"]

    assert environment(pod)["COORDINATOR_PORT"] == environment(pod, 1)["COORDINATOR_PORT"] == "7777"
    assert environment(pod, 1)["PROCESS_ID"] == "1"
    assert environment(pod, 1)["A"] == "b"


def test_a_single_worker_gets_them_too() -> None:
    pod = started(jaxjob(1)).pods["dist-worker-0"]

    assert environment(pod)["COORDINATOR_ADDRESS"] == "dist-worker-0"
    assert environment(pod)["NUM_PROCESSES"] == "1"


def test_names_labels_and_the_port_are_those_of_training_operator_1_9() -> None:
    world = started(jaxjob(2))
    labels = {
        "training.kubeflow.org/operator-name": "jaxjob-controller",
        "training.kubeflow.org/job-name": "dist",
        "training.kubeflow.org/replica-type": "worker",
    }

    first, second = (world.pods[name]["metadata"]["labels"] for name in WORKERS[:2])
    assert first == {
        **labels,
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert second == {**labels, "training.kubeflow.org/replica-index": "1"}
    assert sorted(world.services) == ["dist-worker-0", "dist-worker-1"]
    service = world.services["dist-worker-0"]["spec"]
    assert service["ports"] == [{"name": "jaxjob-port", "port": 6666}]
    assert service["clusterIP"] == "None"
    assert service["selector"] == first


def test_the_defaults_are_those_of_training_operator_1_9() -> None:
    job = job_of(jaxjob(None))

    (workers,) = job.replica_specs
    assert (workers.replicas, workers.restart_policy, workers.port) == (1, RestartPolicy.NEVER, 6666)
    assert job.run_policy.clean_pod_policy is CleanPodPolicy.NONE
    assert job.success_policy is SuccessPolicy.ALL_WORKERS
    assert job.chief == Replica(WORKER, 0)


def test_the_replica_type_may_be_written_in_lower_case() -> None:
    body = jaxjob()
    body["spec"]["jaxReplicaSpecs"] = {"worker": body["spec"]["jaxReplicaSpecs"]["Worker"]}

    assert job_of(body).replica_specs[0].type == WORKER


def test_a_job_succeeds_when_all_workers_have() -> None:
    world = started(jaxjob())
    assert world.conditions()["Running"] == "JAXJobRunning"
    world.exit("dist-worker-0", 0)
    world.exit("dist-worker-1", 0)
    world.settle()
    assert "Succeeded" not in world.conditions()
    world.exit("dist-worker-2", 0)
    world.settle()

    assert world.conditions()["Created"] == "JAXJobCreated"
    assert world.conditions()["Succeeded"] == "JAXJobSucceeded"
    assert world.job["status"]["replicaStatuses"] == {"Worker": {"active": 0, "succeeded": 3, "failed": 0}}
    assert world.job["status"]["completionTime"]
    assert sorted(world.pods) == sorted(WORKERS)


def test_without_a_restart_policy_the_first_failure_fails_the_job() -> None:
    world = started(jaxjob())
    world.exit("dist-worker-2", 1, message="ValueError: NaN")
    world.settle()

    assert world.conditions()["Failed"] == "JAXJobFailed"
    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.message == "worker-2 failed with exit code 1: ValueError: NaN"


def test_a_lost_worker_restarts_all_because_none_can_join_the_others_again() -> None:
    world = started(jaxjob(restartPolicy="OnFailure"))
    world.exit("dist-worker-1", 137)
    for _ in range(3):
        world.settle()
        world.pass_time(60)
    world.run()
    world.settle()

    assert [world.created[name] for name in WORKERS] == [2, 2, 2]
    assert world.tarragon["restarts"]["total"] == 1
    assert world.tarragon["state"] == "Running"
    assert {pod["spec"]["restartPolicy"] for pod in world.pods.values()} == {"Never"}


def test_the_annotation_lets_a_program_that_can_go_on_keep_its_other_workers() -> None:
    world = started(jaxjob(annotations={"tarragon.dev/restart": "replica"}, restartPolicy="OnFailure"))
    world.disrupt("dist-worker-1")
    for _ in range(3):
        world.settle()
        world.pass_time(60)

    assert [world.created[name] for name in WORKERS] == [1, 2, 1]
    assert {pod["spec"]["restartPolicy"] for pod in world.pods.values()} == {"OnFailure"}


TEMPLATE = "spec.jaxReplicaSpecs.Worker.template.spec"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (jaxjob(0), "spec.jaxReplicaSpecs: has no replicas; set the replicas of Worker to 1 or more"),
        (
            with_containers({"name": "main", "image": "a"}),
            f"{TEMPLATE}.containers: no container is named jax; name the one that trains jax, not main",
        ),
        (
            with_containers({"name": "jax"}),
            f"{TEMPLATE}.containers[0].image: is missing; say which image the container runs",
        ),
        (
            jaxjob(annotations={"tarragon.dev/resize": "x"}),
            "metadata.annotations[\"tarragon.dev/resize\"]: unsupported value 'x'; write restart, or remove it",
        ),
    ],
    ids=["no workers", "no container of that name", "no image", "an annotation"],
)
def test_what_can_not_run_is_a_problem(body: dict[str, Any], problem: str) -> None:
    assert problems(body) == [problem]


def test_a_name_that_is_no_name_of_a_service_is_a_problem() -> None:
    body = jaxjob()
    body["metadata"]["name"] = "0-test"

    (problem,) = problems(body)
    assert problem.startswith("metadata.name: gives a replica the name 0-test-worker-2, which ")


def test_there_are_only_workers() -> None:
    body = jaxjob()
    body["spec"]["jaxReplicaSpecs"]["Master"] = body["spec"]["jaxReplicaSpecs"]["Worker"]

    assert problems(body) == ["spec.jaxReplicaSpecs.Master: unknown replica type; write one of Worker"]


def test_a_job_without_replica_specs_is_told_of_its_own_field() -> None:
    body = {**jaxjob(), "spec": {"tfReplicaSpecs": {}}}

    assert "spec.jaxReplicaSpecs: is missing; define the replicas of the job" in problems(body)
    assert len(unknown(body)) == 1


def test_always_and_a_part_of_the_gang_get_a_warning() -> None:
    body = jaxjob(restartPolicy="Always")
    body["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 1}}

    assert [warning.partition(":")[0] for warning in warnings(body)] == [
        "spec.jaxReplicaSpecs.Worker.restartPolicy",
        "spec.runPolicy.schedulingPolicy.minAvailable",
    ]


def test_the_crd_has_one_version_with_the_columns_and_the_scale_of_all_kinds() -> None:
    crd: Any = JAX.crd()

    assert crd["metadata"]["name"] == "jaxjobs.kubeflow.org"
    (version,) = crd["spec"]["versions"]
    assert version["name"] == "v1"
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.jaxReplicaSpecs.Worker.replicas"
    assert [column["name"] for column in version["additionalPrinterColumns"]][:2] == ["State", "Ready"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec) == {"jaxReplicaSpecs", "runPolicy"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ModuleNotFoundError: No module named 'jax'", "JAX is not installed"),
        (f"{DIED}INTERNAL: Shutdown barrier has failed.", "had lost another one"),
        (f"{DIED}DEADLINE_EXCEEDED: Deadline Exceeded", "not all workers called jax.distributed.initialize"),
        ("ValueError: UNKNOWN: Gloo all-reduce failed: Connection closed by peer", "had lost another one"),
        (
            "JaxRuntimeError: INVALID_ARGUMENT: Multiprocess computations aren't implemented on the CPU backend.",
            "does not connect processes on CPUs",
        ),
    ],
)
def test_what_jax_says_at_its_end_is_explained(line: str, words: str) -> None:
    causes = list(probable_causes(ReplicaEnd(lines=["step 3", line])))

    assert words in causes[0].summary
