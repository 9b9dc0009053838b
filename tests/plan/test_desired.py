from __future__ import annotations

import json
from typing import Any

import pytest

from tarragon.kube.scheduling.cpu_peers import CPU_PEERS_ANNOTATION
from tarragon.plan.objects.settings import OperatorSettings
from tests.plan.world import World, manifest


def made(job: dict[str, Any], settings: OperatorSettings | None = None) -> World:
    world = World(job, settings)
    world.settle()
    world.admit()
    world.settle()
    return world


def with_pod(job: dict[str, Any], kind: str = "Worker", **spec: Any) -> dict[str, Any]:
    job["spec"]["tfReplicaSpecs"][kind]["template"]["spec"].update(spec)
    return job


def with_container(job: dict[str, Any], **fields: Any) -> dict[str, Any]:
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(fields)
    return job


def main(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.pods[name]["spec"]["containers"][0]
    return found


def test_a_pod_belongs_to_its_job() -> None:
    world = made(manifest({"Worker": 1}))

    assert world.pods["dist-worker-0"]["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "name": "dist",
            "uid": "job-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert world.pods["dist-worker-0"]["metadata"]["namespace"] == "n1"


def test_the_template_s_labels_and_annotations_are_kept_and_ours_win() -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"] = {
        "labels": {"team": "vision", "training.kubeflow.org/job-name": "mine"},
        "annotations": {"note": "x"},
        "name": "ignored",
    }

    metadata = made(job).pods["dist-worker-0"]["metadata"]

    assert metadata["labels"]["team"] == "vision"
    assert metadata["labels"]["training.kubeflow.org/job-name"] == "dist"
    assert metadata["annotations"] == {"note": "x"}
    assert metadata["name"] == "dist-worker-0"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Never", "Never"), ("OnFailure", "OnFailure"), ("Always", "Always"), ("ExitCode", "Never")],
)
def test_a_pod_is_told_the_restart_policy_that_kubernetes_knows(policy: str, expected: str) -> None:
    job = with_pod(manifest({"Chief": 1, "Worker": 1}, policy=policy), restartPolicy="OnFailure")

    assert made(job).pods["dist-worker-0"]["spec"]["restartPolicy"] == expected


def test_the_rest_of_the_template_is_taken_as_it_is() -> None:
    spec: dict[str, Any] = {
        "hostname": "h",
        "subdomain": "s",
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
    }

    pod = made(with_pod(manifest({"Worker": 1}), **spec)).pods["dist-worker-0"]

    assert spec.items() <= pod["spec"].items()


def test_the_port_is_appended_where_it_is_missing_and_left_where_it_is() -> None:
    own = {"name": "tfjob-port", "containerPort": 3333}

    assert main(made(manifest({"Worker": 1})), "dist-worker-0")["ports"] == [
        {"name": "tfjob-port", "containerPort": 2222}
    ]
    assert main(made(with_container(manifest({"Worker": 1}), ports=[own])), "dist-worker-0")["ports"] == [own]


def test_a_service_offers_the_port_by_name_and_the_other_named_ones() -> None:
    ports = [
        {"name": "board", "containerPort": 6006},
        {"containerPort": 9},
        {"name": "again", "containerPort": 6006},
        {"name": "stats", "containerPort": 8125, "protocol": "UDP"},
    ]

    service = made(with_container(manifest({"Worker": 1}), ports=ports)).services["dist-worker-0"]

    assert service["spec"]["ports"] == [
        {"name": "tfjob-port", "port": 2222},
        {"name": "board", "port": 6006, "protocol": "TCP"},
        {"name": "stats", "port": 8125, "protocol": "UDP"},
    ]


def test_a_service_is_headless_and_known_before_its_pod_is_ready() -> None:
    world = made(manifest({"Worker": 2}))
    service, pod = world.services["dist-worker-1"], world.pods["dist-worker-1"]

    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= world.pods["dist-worker-0"]["metadata"]["labels"].items()


def test_the_last_words_of_a_container_are_kept_unless_the_user_wants_otherwise() -> None:
    asked = with_container(manifest({"Worker": 1}), terminationMessagePolicy="File")

    assert main(made(manifest({"Worker": 1})), "dist-worker-0")["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert main(made(asked), "dist-worker-0")["terminationMessagePolicy"] == "File"


def test_of_two_tf_configs_ours_is_the_only_one_and_the_user_s_variables_may_refer_to_it() -> None:
    env = [{"name": "TF_CONFIG", "value": "mine"}, {"name": "COPY", "value": "$(TF_CONFIG)"}]

    names = main(made(with_container(manifest({"Worker": 2}), env=env)), "dist-worker-1")["env"]

    assert [variable["name"] for variable in names] == ["TF_CONFIG", "COPY"]
    assert json.loads(names[0]["value"])["task"] == {"type": "worker", "index": 1}


def test_a_job_of_one_replica_keeps_the_user_s_own_tf_config() -> None:
    env = [{"name": "TF_CONFIG", "value": "mine"}]

    assert main(made(with_container(manifest({"Worker": 1}), env=env)), "dist-worker-0")["env"] == env


def test_the_nested_generation_tells_the_main_container_only_and_the_flat_one_all() -> None:
    both = [{"name": "tensorflow", "image": "i"}, {"name": "sidecar", "image": "i"}]
    nested = made(with_pod(manifest({"Worker": 2}), containers=both))
    flat = made(with_pod(manifest({"Worker": 2}, cleanPodPolicy="All"), containers=both))

    def has_env(world: World) -> list[bool]:
        return ["env" in container for container in world.pods["dist-worker-0"]["spec"]["containers"]]

    assert (has_env(nested), has_env(flat)) == ([True, False], [True, True])


def test_the_cluster_s_domain_is_a_setting() -> None:
    world = made(manifest({"Worker": 2}), OperatorSettings(cluster_domain="cluster.local"))

    assert "dist-worker-1.n1.svc.cluster.local:2222" in main(world, "dist-worker-0")["env"][0]["value"]


def test_tf_config_lists_the_replicas_that_were_admitted() -> None:
    world = World(manifest({"Worker": 3}))
    world.settle()
    world.admit(Worker=2)
    world.settle()

    cluster = json.loads(main(world, "dist-worker-0")["env"][0]["value"])["cluster"]
    assert cluster["worker"] == ["dist-worker-0.n1.svc:2222", "dist-worker-1.n1.svc:2222"]


def test_a_pod_without_a_place_is_left_to_a_scheduler_that_there_is() -> None:
    world = World(with_pod(manifest({"Worker": 1}), schedulerName="tarragon"))
    world.settle()
    world.admit()
    world.patch_job({"status": {"tarragon": {"admission": {"nodes": None}}}})
    world.settle()

    spec = world.pods["dist-worker-0"]["spec"]
    assert "nodeName" not in spec
    assert "schedulerName" not in spec


def test_pods_on_one_machine_say_how_many_of_their_job_set_no_cpus() -> None:
    job = manifest({"Chief": 1, "PS": 2, "Worker": 3})
    chief = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]
    chief["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 2}}

    on_one_machine = made(job, OperatorSettings(shares_cores=True))
    elsewhere = made(job)

    counts = {pod["metadata"].get("annotations", {}).get(CPU_PEERS_ANNOTATION) for pod in on_one_machine.pods.values()}
    assert counts == {"5"}
    assert all("annotations" not in pod["metadata"] for pod in elsewhere.pods.values())
