from __future__ import annotations

from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import CHIEF, MASTER, PS
from tarragon.job.model import Replica, ReplicaType
from tests.frameworks.jobs import dialect_of, job_of, tfjob

WORKER_0 = Replica(WORKER, 0)
WORKER_1 = Replica(WORKER, 1)
PS_0 = Replica(PS, 0)


def test_a_nested_job_has_the_labels_of_the_training_operator_and_those_before_them() -> None:
    manifest = tfjob({"PS": 1, "Worker": 2}, runPolicy={})

    assert dialect_of(manifest).labels(job_of(manifest), WORKER_0) == {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "dist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
        "group-name": "kubeflow.org",
        "job-name": "dist",
        "replica-type": "worker",
        "replica-index": "0",
        "job-role": "master",
    }


def test_a_flat_job_has_the_labels_of_tf_operator() -> None:
    manifest = tfjob({"PS": 1, "Worker": 2}, cleanPodPolicy="All")

    assert dialect_of(manifest).labels(job_of(manifest), PS_0) == {
        "group-name": "kubeflow.org",
        "tf-job-name": "dist",
        "tf-replica-type": "ps",
        "tf-replica-index": "0",
    }


@pytest.mark.parametrize("chief", [CHIEF, MASTER])
def test_the_master_is_the_chief_or_where_there_is_none_worker_0(chief: ReplicaType) -> None:
    manifest = tfjob({chief: 1, "Worker": 1}, cleanPodPolicy="All")
    dialect, job = dialect_of(manifest), job_of(manifest)

    assert dialect.labels(job, Replica(chief, 0))["tf-job-role"] == "master"
    assert "tf-job-role" not in dialect.labels(job, WORKER_0)


@pytest.mark.parametrize("spec", [{"runPolicy": {}}, {"cleanPodPolicy": "All"}, {"max-instances": 4}])
def test_every_replica_carries_what_the_job_and_the_scale_subresource_select_by(spec: dict[str, Any]) -> None:
    manifest = tfjob({"PS": 1, "Worker": 2}, **spec)
    dialect, job = dialect_of(manifest), job_of(manifest)

    assert dialect.selector(job).items() <= dialect.labels(job, PS_0).items()
    assert dialect.worker_selector(job).items() <= dialect.labels(job, WORKER_1).items()
    assert not dialect.worker_selector(job).items() <= dialect.labels(job, PS_0).items()


def test_a_name_tells_its_replica_and_nobody_elses() -> None:
    manifest = tfjob({"PS": 1, "Worker": 2})
    names, job = dialect_of(manifest).names, job_of(manifest)

    assert names.pod(job, WORKER_1) == names.service(job, WORKER_1) == "dist-worker-1"
    assert names.replica_of(job, "dist-worker-1") == WORKER_1
    for other in ("dist-worker-01", "dist-worker-", "dist-worker", "dist-worker-x", "dist-worker-1-2", "dist-other-0",
                  "distworker-1", "dist-worker-²", "dist", ""):  # fmt: skip
        assert names.replica_of(job, other) is None


def test_the_pods_of_a_job_whose_name_begins_alike_are_not_ours() -> None:
    job = job_of(tfjob(name="a"))

    assert dialect_of(tfjob(name="a")).names.replica_of(job, "a-worker-worker-0") is None


def test_each_generation_has_its_words_for_the_reasons_of_conditions() -> None:
    nested, flat = dialect_of(tfjob(runPolicy={})), dialect_of(tfjob(cleanPodPolicy="All"))

    assert nested.condition_reason("Succeeded") == flat.condition_reason("Succeeded") == "TFJobSucceeded"
    assert nested.condition_reason("Invalid") == "TFJobFailedValidation"
    assert flat.condition_reason("Invalid") == "InvalidTFJobSpec"
