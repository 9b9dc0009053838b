from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.frameworks.jobs import template
from tests.frameworks.listed_jobs import cluster, item, listed
from tests.plan.world import World, is_idle


def started(manifest: dict[str, Any]) -> World:
    """All of its pods run."""
    world = World(manifest)
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    return world


def pod_of(world: World, replica: str) -> str:
    """The name of its pod: `master-0` has one with runtime id and tail."""
    kind, index = replica.split("-")
    (name,) = (name for name in world.pods if f"-{kind}-" in name and name.split("-")[-2] == index)
    return name


def shown(world: World) -> dict[str, Any]:
    """The fields of its generation."""
    return {name: value for name, value in world.job["status"].items() if name not in {"tarragon", "conditions"}}


def phase_and_state(world: World) -> tuple[str, str]:
    return world.job["status"]["phase"], world.job["status"]["state"]


def under(policy: str) -> dict[str, Any]:
    return listed(item("MASTER", template={"spec": {**template()["spec"], "restartPolicy": policy}}), item("WORKER"))


def test_its_status_goes_through_the_phases_of_its_time() -> None:
    world = World(cluster())
    phases = []
    happenings: list[Callable[[], object]] = [
        world.settle,
        world.admit,
        world.run,
        lambda: world.exit(pod_of(world, "master-0"), 0),
    ]
    for happens in happenings:
        happens()
        while not is_idle(world.step()):
            phases.append(world.job.get("status", {}).get("phase", ""))
            world.bury()

    assert list(dict.fromkeys(phases)) == ["Creating", "Running", "CleanUp", "Done"]


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "Never"])
def test_a_master_runs_once_in_its_pod_and_who_fails_for_good_leaves_its_log(policy: str) -> None:
    world = started(under(policy))
    pod = pod_of(world, "master-0")
    policies = {name.split("-")[1]: found["spec"]["restartPolicy"] for name, found in world.pods.items()}
    world.exit(pod, 1)
    world.settle()

    assert policies == {"master": "Never", "worker": "Always"}
    assert phase_and_state(world) == ("Done", "Failed")
    assert pod in world.pods


def test_a_finished_job_is_told_in_the_shape_of_its_readme() -> None:
    world = started(cluster(ps=2, workers=1))
    world.exit(pod_of(world, "master-0"), 0)
    world.settle()

    assert shown(world) == {
        "controlPaused": False,
        "phase": "Done",
        "reason": "",
        "replicaStatuses": [
            {"tf_replica_type": "MASTER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}},
            {"tf_replica_type": "WORKER", "state": "Unknown", "ReplicasStates": {}},
            {"tf_replica_type": "PS", "state": "Unknown", "ReplicasStates": {}},
        ],
        "state": "Succeeded",
    }
    assert [pod_of(world, "master-0")] == list(world.pods)
    assert world.services == {}


def test_clients_of_later_generations_can_wait_for_its_conditions() -> None:
    world = started(cluster())
    world.exit(pod_of(world, "master-0"), 0)
    world.settle()

    status = world.job["status"]
    assert ("Succeeded", "True") in {(each["type"], each["status"]) for each in status["conditions"]}
    assert status["conditions"] == status["tarragon"]["record"]["conditions"]


def test_a_running_job_counts_its_replicas_by_state() -> None:
    world = World(cluster(ps=1, workers=2))
    world.settle()
    world.admit()
    world.settle()
    world.run(pod_of(world, "ps-0"), pod_of(world, "worker-1"))
    world.settle()

    assert shown(world)["replicaStatuses"] == [
        {"tf_replica_type": "MASTER", "state": "Unknown", "ReplicasStates": {"Unknown": 1}},
        {"tf_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 1, "Unknown": 1}},
        {"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 1}},
    ]
    assert phase_and_state(world) == ("Creating", "Running")


def test_what_keeps_it_waiting_is_its_reason() -> None:
    world = World(cluster())
    world.settle()
    world.keep_waiting("NoRoom", "4 replicas need 4 GPUs, and 2 are free")
    world.settle()

    assert shown(world)["reason"] == "4 replicas need 4 GPUs, and 2 are free"


def test_generation_and_what_was_filled_in_are_written_at_once_and_before_anything_else() -> None:
    world = World(cluster())
    step = world.step()

    assert step.metadata_patch is not None
    assert world.job["metadata"]["annotations"]["tarragon.dev/generation"] == "kubeflow.org/v1alpha1"
    assert len(world.job["spec"]["RuntimeId"]) == 4
    assert world.job["spec"]["replicaSpecs"][2]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert (world.pods, world.services) == ({}, {})


def test_pods_services_and_the_script_are_called_by_the_runtime_id() -> None:
    world = started(cluster(RuntimeId="ab12"))

    assert sorted(world.services) == ["j-master-ab12-0", "j-ps-ab12-0", "j-worker-ab12-0", "j-worker-ab12-1"]
    assert {name[:-6] for name in world.pods} == set(world.services)
    assert [name[:11] for name in world.config_maps] == ["cm-ps-ab12-"]
    assert world.services["j-ps-ab12-0"]["spec"]["ports"] == [{"name": "tf-port", "port": 2222}]


def test_a_port_of_ones_own_is_everybodys_word_for_it() -> None:
    container = {"ports": [{"name": "tfjob-port", "containerPort": 4000}]}
    world = started(listed(item("MASTER", tfPort=5000, template=template(**container)), RuntimeId="ab12"))
    (pod,) = world.pods.values()
    (variable,) = pod["spec"]["containers"][0]["env"]

    assert world.services["j-master-ab12-0"]["spec"]["ports"][0] == {"name": "tf-port", "port": 5000}
    assert json.loads(variable["value"])["cluster"] == {"master": ["j-master-ab12-0:5000"]}


def test_the_server_that_was_left_to_us_has_its_script_before_it_starts() -> None:
    world = World(cluster())
    world.settle()
    world.admit()
    step = world.step()

    assert list(dict.fromkeys(create.resource.kind for create in step.creates)) == ["Service", "ConfigMap", "Pod"]
    server = world.pods[pod_of(world, "ps-0")]["spec"]
    assert server["volumes"] == [{"name": "ps-config-volume", "configMap": {"name": next(iter(world.config_maps))}}]
    assert server["containers"][0]["command"][4] == "/ps-server/grpc_tensorflow_server.py"


@pytest.mark.parametrize(
    ("code", "reason"), [(1, ""), (2, ""), (126, ""), (127, ""), (128, ""), (139, ""), (137, "OOMKilled"), (200, "")]
)
@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_master_that_fails_for_good_fails_the_job(code: int, reason: str, policy: str) -> None:
    world = started(under(policy))
    world.exit(pod_of(world, "master-0"), code, reason=reason)
    world.settle()

    assert phase_and_state(world) == ("Done", "Failed")
    assert shown(world)["reason"].startswith("master-0 ")
    assert world.tarragon["failure"]["exitCode"] == code


@pytest.mark.parametrize("code", [130, 137, 138, 143])
def test_a_master_that_was_only_interrupted_is_started_again(code: int) -> None:
    world = started(under("Never"))
    master = pod_of(world, "master-0")
    world.exit(master, code)
    world.settle()
    assert phase_and_state(world) == ("Running", "Running")
    assert world.pods[master]["status"]["phase"] == "Pending"

    world.run(master)
    world.exit(master, 0)
    world.settle()
    assert phase_and_state(world) == ("Done", "Succeeded")


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_a_permanent_end_counts_although_the_kubelet_has_started_the_master_again(policy: str) -> None:
    world = started(under(policy))
    world.restart_in_place(pod_of(world, "master-0"), times=1, code=1)
    world.settle()

    assert phase_and_state(world) == ("Done", "Failed")
    assert world.pods == {}


def test_a_retryable_end_is_left_to_the_kubelet() -> None:
    world = started(under("OnFailure"))
    master = pod_of(world, "master-0")
    world.restart_in_place(master, times=1, code=143)
    world.settle()

    assert phase_and_state(world) == ("Running", "Running")
    assert world.created[master] == 1
    assert world.tarragon["restarts"]["total"] == 1


def test_a_clean_end_counts_although_the_kubelet_has_started_the_master_again() -> None:
    world = started(under("Always"))
    world.restart_in_place(pod_of(world, "master-0"), times=1, code=0)
    world.settle()

    assert phase_and_state(world) == ("Done", "Succeeded")


def test_g14_nobody_but_the_master_fails_the_job() -> None:
    world = started(cluster())
    worker = pod_of(world, "worker-1")
    world.exit(worker, 1)
    world.settle()
    assert phase_and_state(world) == ("Running", "Running")
    assert world.created[worker] == 2

    world.run(worker)
    world.settle()
    assert shown(world)["replicaStatuses"][1]["ReplicasStates"] == {"Running": 2}


def test_whom_the_termination_policy_names_decides_alone() -> None:
    world = started(cluster(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 1}}))
    for other in ("master-0", "worker-0"):
        world.exit(pod_of(world, other), 1)
    world.settle()
    assert phase_and_state(world) == ("Running", "Running")

    world.exit(pod_of(world, "worker-1"), 0)
    world.settle()
    assert phase_and_state(world) == ("Done", "Succeeded")


def test_a_job_that_makes_no_sense_has_failed_before_it_began() -> None:
    world = World(listed(item("WORKER")))
    world.settle()

    assert phase_and_state(world) == ("Failed", "Failed")
    assert shown(world)["reason"].startswith("spec.replicaSpecs: has no MASTER")
    assert [each["type"] for each in world.job["status"]["conditions"]] == ["Failed"]
    assert world.status.completion_time == world.now
    assert [(event.type, event.reason) for event in world.events] == [("Warning", "InvalidTFJobSpec")]
    assert (world.pods, world.services) == ({}, {})


def test_a_mended_manifest_does_not_wake_what_has_failed() -> None:
    world = World(listed(item("WORKER")))
    world.settle()
    world.edit({"replicaSpecs": [item("MASTER")]})
    world.settle()

    assert phase_and_state(world) == ("Failed", "Failed")
    assert world.pods == {}


def test_a_slip_in_an_editor_is_told_and_forgotten_once_it_is_mended() -> None:
    world = started(cluster())
    before, pods = shown(world), dict(world.pods)
    replicas = world.job["spec"]["replicaSpecs"]
    world.edit({"replicaSpecs": [*replicas, {"tfReplicaType": "CHEF"}]})
    world.settle()
    assert shown(world)["reason"].startswith("spec.replicaSpecs[3].tfReplicaType: must be MASTER, PS or WORKER")
    assert phase_and_state(world) == ("Running", "Running")

    world.edit({"replicaSpecs": replicas})
    world.settle()
    assert shown(world) == before
    assert world.pods == pods


def test_it_can_be_suspended_and_resumed_like_any_other() -> None:
    world = started(cluster())
    world.edit({"runPolicy": {"suspend": True}})
    world.settle()
    assert phase_and_state(world) == ("Creating", "Unknown")
    assert shown(world)["reason"] == "TFJob j is suspended"
    assert (world.pods, world.services, world.tarragon["state"]) == ({}, {}, "Suspended")

    world.edit({"runPolicy": {"suspend": False}})
    world.settle()
    world.admit()
    world.settle()
    world.run()
    world.settle()
    assert phase_and_state(world) == ("Running", "Running")
    assert shown(world)["reason"] == ""


def test_kubectl_scale_takes_workers_away() -> None:
    world = started(cluster(workers=3))
    world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 1}}})
    world.admit()
    world.settle()

    assert [name.split("-")[1] for name in sorted(world.pods)] == ["master", "ps", "worker"]
    assert shown(world)["replicaStatuses"][1]["ReplicasStates"] == {"Running": 1}
    assert world.tarragon["replicas"] == 1


def test_a_new_look_at_what_is_done_changes_nothing() -> None:
    for world in (started(cluster()), started(under("Always"))):
        world.exit(pod_of(world, "master-0"), 0)
        world.settle()
        version = world.job["metadata"]["resourceVersion"]
        world.step()

        assert world.job["metadata"]["resourceVersion"] == version
