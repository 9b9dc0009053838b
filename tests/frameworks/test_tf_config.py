"""TF_CONFIG, compared byte for byte with what the operators of each generation wrote."""

from __future__ import annotations

import json
from typing import Any

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, EVALUATOR, MASTER, PS
from tarragon.job.model import Replica
from tests.frameworks.jobs import dialect_of, elastic, job_of, tfjob


def tf_config(manifest: dict[str, Any], replica: Replica, domain: str = "") -> str | None:
    job = job_of(manifest)
    wiring = dialect_of(manifest).discovery_config(job, job.requested_size(), domain)(replica)
    return None if wiring is None else wiring.env["TF_CONFIG"]


def cluster(manifest: dict[str, Any], replica: Replica) -> dict[str, Any]:
    text = tf_config(manifest, replica)
    assert text is not None
    found: dict[str, Any] = json.loads(text)["cluster"]
    return found


def test_g1_a_worker_is_told_the_whole_cluster_and_its_own_place() -> None:
    config = tf_config(tfjob({"PS": 2, "Worker": 3}), Replica(WORKER, 1))

    assert config == (
        '{"cluster":{"ps":["dist-ps-0.n1.svc:2222","dist-ps-1.n1.svc:2222"],'
        '"worker":["dist-worker-0.n1.svc:2222","dist-worker-1.n1.svc:2222","dist-worker-2.n1.svc:2222"]},'
        '"task":{"type":"worker","index":1},"environment":"cloud"}'
    )


def test_g2_the_cluster_domain_is_appended_to_every_host() -> None:
    config = tf_config(tfjob({"PS": 2, "Worker": 3}), Replica(WORKER, 1), "cluster.local")

    assert config is not None
    assert '"dist-ps-0.n1.svc.cluster.local:2222"' in config


def test_g3_a_job_of_one_replica_is_told_nothing() -> None:
    assert tf_config(tfjob({"Worker": 1}), Replica(WORKER, 0)) is None


def test_g4_an_elastic_job_lists_every_worker_that_may_ever_come() -> None:
    hosts = cluster(tfjob({"PS": 1, "Worker": 2}, **elastic(1, 4)), Replica(WORKER, 0))

    assert hosts["worker"] == [f"dist-worker-{index}.n1.svc:2222" for index in range(4)]
    assert hosts["ps"] == ["dist-ps-0.n1.svc:2222"]


def test_an_elastic_job_is_told_even_when_it_starts_with_a_single_worker() -> None:
    assert len(cluster(tfjob({"Worker": 1}, **elastic(1, 4)), Replica(WORKER, 0))["worker"]) == 4


def test_g5_a_sparse_server_is_told_itself_only() -> None:
    config = tf_config(tfjob({"PS": 2, "Worker": 3}, enableDynamicWorker=True), Replica(PS, 0))

    assert config == '{"cluster":{"worker":{},"ps":["dist-ps-0.n1.svc:2222"]},"task":{"type":"ps","index":0}}'


def test_g6_a_sparse_worker_is_told_itself_and_the_servers() -> None:
    config = tf_config(tfjob({"PS": 2, "Worker": 3}, enableDynamicWorker=True), Replica(WORKER, 2))

    assert config == (
        '{"cluster":{"worker":{"2":"dist-worker-2.n1.svc:2222"},'
        '"ps":["dist-ps-0.n1.svc:2222","dist-ps-1.n1.svc:2222"]},"task":{"type":"worker","index":2}}'
    )


def test_a_sparse_chief_and_evaluator_find_the_servers_and_themselves() -> None:
    job = tfjob({"Chief": 1, "PS": 1, "Worker": 1, "Evaluator": 1}, enableDynamicWorker=True)

    assert cluster(job, Replica(CHIEF, 0)) == {
        "worker": {},
        "ps": ["dist-ps-0.n1.svc:2222"],
        "chief": ["dist-chief-0.n1.svc:2222"],
    }
    assert cluster(job, Replica(EVALUATOR, 0))["evaluator"] == ["dist-evaluator-0.n1.svc:2222"]


def test_a_later_sparse_server_stands_where_tensorflow_looks_for_it() -> None:
    job = tfjob({"PS": 2, "Worker": 1}, enableDynamicWorker=True)

    assert cluster(job, Replica(PS, 1))["ps"] == {"1": "dist-ps-1.n1.svc:2222"}


def test_a_sparse_worker_without_servers_gets_an_empty_list_not_null() -> None:
    job = tfjob({"Worker": 2}, enableDynamicWorker=True)

    assert cluster(job, Replica(WORKER, 1)) == {"worker": {"1": "dist-worker-1.n1.svc:2222"}, "ps": []}


def test_the_nested_generation_lists_the_evaluator_and_the_flat_one_does_not() -> None:
    replicas = {"Worker": 2, "Evaluator": 1}

    assert "evaluator" in cluster(tfjob(replicas, runPolicy={}), Replica(WORKER, 0))
    assert "evaluator" not in cluster(tfjob(replicas, cleanPodPolicy="All"), Replica(WORKER, 0))


def test_a_flat_evaluator_beside_one_worker_is_told_its_task() -> None:
    config = tf_config(tfjob({"Worker": 1, "Evaluator": 1}, cleanPodPolicy="All"), Replica(EVALUATOR, 0))

    assert config is not None
    assert json.loads(config)["task"] == {"type": "evaluator", "index": 0}


def test_each_type_is_reached_by_its_own_port() -> None:
    server = {"template": {"spec": {"containers": [
        {"name": "tensorflow", "image": "i", "ports": [{"name": "tfjob-port", "containerPort": 3333}]}
    ]}}}  # fmt: skip

    hosts = cluster(tfjob({"PS": server, "Worker": 1}), Replica(WORKER, 0))

    assert hosts == {"ps": ["dist-ps-0.n1.svc:3333"], "worker": ["dist-worker-0.n1.svc:2222"]}


def test_master_stays_master_and_the_keys_are_sorted() -> None:
    config = tf_config(tfjob({"Worker": 1, "Master": 1, "PS": 1}), Replica(MASTER, 0))

    assert config is not None
    assert list(json.loads(config)["cluster"]) == ["master", "ps", "worker"]
    assert list(json.loads(config)) == ["cluster", "task", "environment"]
