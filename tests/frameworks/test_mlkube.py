from __future__ import annotations

import json
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import MASTER, PS
from tarragon.job.model import CleanPodPolicy, Replica
from tarragon.kube.merge_patch import apply_merge_patch
from tests.frameworks.jobs import dialect_of, job_of, problems, taken, template, unknown, warnings


def tfjob(**spec: Any) -> dict[str, Any]:
    """As somebody of late 2017 wrote it: the parameter server is left to the operator."""
    return {
        "apiVersion": "mlkube.io/v1beta1",
        "kind": "TfJob",
        "metadata": {"name": "example-job", "namespace": "n1", "uid": "a-uid"},
        "spec": {
            "RuntimeId": "ab12",
            "replicaSpecs": [
                {"replicas": 1, "tfPort": 2222, "tfReplicaType": "MASTER", "template": template()},
                {"replicas": 2, "tfReplicaType": "WORKER", "template": template()},
                {"replicas": 1, "tfReplicaType": "PS"},
            ],
            **spec,
        },
    }


def of_june() -> dict[str, Any]:
    """The spelling of the first operator."""
    items = [
        {"replicas": 1, "tf_port": 5000, "tf_replica_type": "MASTER", "template": template()},
        {"replicas": 2, "tf_port": 5001, "tf_replica_type": "WORKER", "template": template()},
        {"replicas": 1, "tf_port": 5002, "tf_replica_type": "PS", "template": template()},
    ]
    found = tfjob(replica_specs=items)
    del found["spec"]["replicaSpecs"]
    return found


def wired(manifest: dict[str, Any], replica: Replica) -> Any:
    job = job_of(manifest)
    return dialect_of(manifest).discovery_config(job, job.requested_size(), "cluster.local")(replica)


def test_both_spellings_say_the_same() -> None:
    jobs = [job_of(tfjob()), job_of(of_june())]

    assert [(group.type, group.replicas, group.port) for group in jobs[0].replica_specs] == [
        (MASTER, 1, 2222),
        (WORKER, 2, 2222),
        (PS, 1, 2222),
    ]
    assert [(group.type, group.replicas, group.port) for group in jobs[1].replica_specs] == [
        (MASTER, 1, 5000),
        (WORKER, 2, 5001),
        (PS, 1, 5002),
    ]
    assert [job.runtime_id for job in jobs] == ["ab12", "ab12"]
    assert [(job.kind, job.api_version) for job in jobs] == [("TfJob", "mlkube.io/v1beta1")] * 2


@pytest.mark.parametrize("spelling", ["RuntimeId", "runtimeId", "runtimeid"])
def test_the_runtime_id_is_read_in_any_capitals(spelling: str) -> None:
    manifest = tfjob()
    del manifest["spec"]["RuntimeId"]
    manifest["spec"][spelling] = "zz99"

    assert job_of(manifest).runtime_id == "zz99"
    assert not unknown(manifest)


def test_services_and_pods_are_called_after_the_runtime_id_alone() -> None:
    names, job = dialect_of(tfjob()).names, job_of(tfjob())

    assert names.service(job, Replica(WORKER, 1)) == "worker-ab12-1"
    assert names.pod(job, Replica(WORKER, 1)) == "worker-ab12-1"
    assert names.replica_of(job, "ps-ab12-0") == Replica(PS, 0)
    for stranger in ("ps-ab13-0", "ps-ab12-00", "ps-ab12-", "tensorboard-ab12", "example-job-ps-ab12-0"):
        assert names.replica_of(job, stranger) is None


def test_labels_are_those_of_its_time() -> None:
    job, dialect = job_of(tfjob()), dialect_of(tfjob())
    labels = dialect.labels(job, Replica(WORKER, 1))

    of_its_time = {"mlkube.io": "", "job_type": "WORKER", "runtime_id": "ab12", "task_index": "1"}
    assert of_its_time.items() <= labels.items()
    assert dialect.selector(job).items() <= labels.items()
    assert dialect.worker_selector(job).items() <= labels.items()


def test_the_cluster_is_told_by_bare_names() -> None:
    config = json.loads(wired(of_june(), Replica(WORKER, 1)).env["TF_CONFIG"])

    assert config["cluster"] == {
        "master": ["master-ab12-0:5000"],
        "ps": ["ps-ab12-0:5002"],
        "worker": ["worker-ab12-0:5001", "worker-ab12-1:5001"],
    }
    assert config["task"] == {"type": "worker", "index": 1}


def test_the_default_server_is_told_the_cluster_as_the_first_one_was() -> None:
    """Golden vector G8."""
    manifest = tfjob()
    manifest["spec"]["replicaSpecs"][1]["replicas"] = 2
    command = wired(manifest, Replica(PS, 0)).command

    at = command.index("--cluster_spec") + 1
    assert command[at] == "master|master-ab12-0:2222,ps|ps-ab12-0:2222,worker|worker-ab12-0:2222;worker-ab12-1:2222"
    assert command[at + 1 :] == ["--job_name", "ps", "--task_id", "0"]


def test_what_the_operator_fills_in_is_written_as_its_users_saw_it() -> None:
    manifest = tfjob()
    del manifest["spec"]["RuntimeId"]
    back = dialect_of(manifest).default_fields(job_of(manifest), manifest["spec"])
    filled = {**manifest, "spec": apply_merge_patch(manifest["spec"], back)}

    assert filled["spec"]["RuntimeId"] == job_of(manifest).runtime_id
    assert filled["spec"]["tfImage"] == "tensorflow/tensorflow:1.3.0"
    assert job_of(filled).replica_specs == job_of(manifest).replica_specs
    assert not unknown(filled)


def test_the_parameter_server_of_a_manifest_that_was_read_back_from_then_is_still_the_default_one() -> None:
    manifest = tfjob()
    manifest["spec"]["replicaSpecs"][2]["IsDefaultPS"] = True

    assert [group.runs_provided_program for group in job_of(manifest).replica_specs] == [False, False, True]
    assert not unknown(manifest)


def test_everything_is_kept_until_the_user_deletes_it() -> None:
    assert job_of(tfjob()).run_policy.clean_pod_policy is CleanPodPolicy.NONE


def test_fields_of_the_next_generation_are_none_of_this_one() -> None:
    found = unknown(tfjob(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 0}}))

    assert [line.partition(":")[0] for line in found] == ["spec.terminationPolicy"]


def test_without_a_master_nobody_decides() -> None:
    manifest = tfjob()
    del manifest["spec"]["replicaSpecs"][0]

    (problem,) = problems(manifest)
    assert "has no MASTER" in problem


def test_a_valid_job_has_nothing_to_be_warned_of() -> None:
    assert taken(tfjob()).job is not None
    assert not warnings(tfjob())
    assert not warnings(of_june())
