"""What the map-shaped generations before kubeflow.org/v1 name, tell and write, as the last operator of each did."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.conditions import ConditionUpdate, set_condition
from tarragon.job.exit_codes import ExitClass
from tarragon.job.model import GENERATION_ANNOTATION, CleanPodPolicy, Replica, RestartPolicy
from tarragon.job.status import JobStatus, ReplicaStatus
from tests.frameworks.jobs import dialect_of, job_of, problems, template, tfjob, unknown

ALPHA, BETA_1, BETA_2 = (f"kubeflow.org/{version}" for version in ("v1alpha2", "v1beta1", "v1beta2"))
FLAT = "kubeflow.org/v1-flat"
OLD = (ALPHA, BETA_1, BETA_2)
NOW = dt.datetime(2018, 6, 1, 12, tzinfo=dt.UTC)
WORKER_0 = Replica(WORKER, 0)
PS_0 = Replica(PS, 0)


def of(generation: str, replicas: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """As its user wrote it; the flat v1 is told from the nested one by what is written."""
    if generation == FLAT:
        return tfjob(replicas, **{"cleanPodPolicy": "Running", **spec})
    return {**tfjob(replicas, **spec), "apiVersion": generation}


@pytest.mark.parametrize("generation", OLD)
def test_each_is_read_as_what_it_says_it_is(generation: str) -> None:
    job = job_of(of(generation, {"PS": 1, "Worker": 2}))

    assert (job.dialect, job.api_version) == (generation, generation)
    assert (job.requested_size(), job.chief) == ({PS: 1, WORKER: 2}, WORKER_0)


@pytest.mark.parametrize("generation", [*OLD, FLAT])
def test_running_pods_go_when_the_job_has_ended_and_replicas_are_never_restarted_unless_their_user_says_more(
    generation: str,
) -> None:
    job = job_of(of(generation, {"worker": {"template": template()}}))

    assert job.run_policy.clean_pod_policy is CleanPodPolicy.RUNNING
    assert (job.replica_specs[0].replicas, job.replica_specs[0].restart_policy, job.replica_specs[0].port) == (
        1,
        RestartPolicy.NEVER,
        2222,
    )
    policy = job.run_policy
    assert (policy.ttl_seconds_after_finished, policy.active_deadline_seconds, policy.backoff_limit) == (
        None,
        None,
        None,
    )


POLICIES: dict[str, Any] = {
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 7,
    "activeDeadlineSeconds": 8,
    "backoffLimit": 9,
}


@pytest.mark.parametrize(
    ("generation", "values"),
    [
        (ALPHA, (CleanPodPolicy.ALL, 7, None, None)),
        (BETA_1, (CleanPodPolicy.ALL, 7, None, None)),
        (BETA_2, (CleanPodPolicy.ALL, 7, 8, 9)),
        (FLAT, (CleanPodPolicy.ALL, 7, 8, 9)),
    ],
)
def test_each_has_the_policies_of_its_time(generation: str, values: tuple[Any, ...]) -> None:
    policy = job_of(of(generation, **POLICIES)).run_policy

    found = (
        policy.clean_pod_policy,
        policy.ttl_seconds_after_finished,
        policy.active_deadline_seconds,
        policy.backoff_limit,
    )
    assert found == values


def test_a_policy_that_came_later_is_told_as_unknown_and_where_it_is_known() -> None:
    assert unknown(of(ALPHA, backoffLimit=3)) == [
        "spec.backoffLimit: unknown field; kubeflow.org/v1alpha2 does not have it: submit the job as kubeflow.org/v1"
    ]
    (problems,) = unknown(of(BETA_1, activeDeadlineSeconds=3))
    assert problems.startswith("spec.activeDeadlineSeconds: unknown field; kubeflow.org/v1beta1 does not have it")
    assert unknown(of(BETA_2, activeDeadlineSeconds=3, backoffLimit=3)) == []


@pytest.mark.parametrize("generation", OLD)
def test_what_v1_brought_has_no_effect_in_a_job_that_is_marked_as_older(generation: str) -> None:
    manifest = of(generation, runPolicy={"cleanPodPolicy": "None", "suspend": True}, successPolicy="AllWorkers",
                  enableDynamicWorker=True, suspend=True)  # fmt: skip
    manifest["metadata"]["annotations"] = {GENERATION_ANNOTATION: generation}
    version = generation.partition("/")[2]

    job = job_of(manifest)

    assert (job.run_policy.clean_pod_policy, job.run_policy.suspend) == (CleanPodPolicy.RUNNING, False)
    assert (job.success_policy, any(group.may_fail for group in job.replica_specs)) == ("", False)
    problems = {problem.partition(":")[0]: problem.partition("; ")[2] for problem in unknown(manifest)}
    known = "activeDeadlineSeconds, backoffLimit, " if generation == BETA_2 else ""
    assert problems == {
        "spec.runPolicy": f"kubeflow.org/{version} has these policies directly in spec: "
        + ", ".join(sorted(filter(None, f"{known}cleanPodPolicy, ttlSecondsAfterFinished".split(", ")))),
        **{
            f"spec.{name}": f"kubeflow.org/{version} does not have it: submit the job as kubeflow.org/v1"
            for name in ("successPolicy", "enableDynamicWorker", "suspend")
        },
    }


def test_fields_of_the_nested_v1_make_a_job_one_of_the_nested_v1_whatever_version_stands_above_it() -> None:
    job = job_of(of(ALPHA, runPolicy={"cleanPodPolicy": "None"}))

    assert (job.dialect, job.run_policy.clean_pod_policy) == ("kubeflow.org/v1", CleanPodPolicy.NONE)


def test_a_field_that_nobody_knows_is_told_with_the_nearest_that_there_is() -> None:
    assert unknown(of(ALPHA, cleanPodPolcy="All")) == [
        "spec.cleanPodPolcy: unknown field; did you mean cleanPodPolicy?"
    ]


LABELS = {
    ALPHA: {"group_name": "kubeflow.org", "tf_job_name": "dist", "tf-replica-type": "worker", "tf-replica-index": "0"},
    BETA_1: {
        "group_name": "kubeflow.org",
        "tf_job_name": "dist",
        "tf-replica-type": "worker",
        "tf-replica-index": "0",
        "tf_job_role": "master",
    },
    BETA_2: {
        "group-name": "kubeflow.org",
        "tf-job-name": "dist",
        "tf-replica-type": "worker",
        "tf-replica-index": "0",
        "tf-job-role": "master",
    },
}


@pytest.mark.parametrize("generation", OLD)
def test_pods_carry_the_labels_of_the_time(generation: str) -> None:
    manifest = of(generation, {"PS": 1, "Worker": 2})
    dialect, job = dialect_of(manifest), job_of(manifest)

    assert dialect.labels(job, WORKER_0) == LABELS[generation]
    assert not {"tf_job_role", "tf-job-role"} & dialect.labels(job, PS_0).keys()
    assert dialect.selector(job).items() <= dialect.labels(job, PS_0).items()
    assert dialect.worker_selector(job).items() <= LABELS[generation].items()


@pytest.mark.parametrize("generation", OLD)
def test_pods_and_services_are_called_after_the_job(generation: str) -> None:
    manifest = of(generation, {"PS": 1, "Worker": 2})
    names, job = dialect_of(manifest).names, job_of(manifest)

    assert names.pod(job, PS_0) == names.service(job, PS_0) == "dist-ps-0"
    assert names.replica_of(job, "dist-worker-0") == WORKER_0


def tf_config(manifest: dict[str, Any], replica: Replica, domain: str = "") -> str | None:
    job = job_of(manifest)
    wiring = dialect_of(manifest).discovery_config(job, job.requested_size(), domain)(replica)
    assert wiring is None or wiring.container == "", "every container is told"
    return None if wiring is None else wiring.env["TF_CONFIG"]


HOSTS = {
    (ALPHA, ""): "dist-{}:2222",
    (ALPHA, "cluster.local"): "dist-{}:2222",
    (BETA_1, ""): "dist-{}.n1.svc:2222",
    (BETA_1, "cluster.local"): "dist-{}.n1.svc.cluster.local:2222",
    (BETA_2, ""): "dist-{}.n1.svc:2222",
    (FLAT, ""): "dist-{}.n1.svc:2222",
}


@pytest.mark.parametrize(("generation", "domain"), HOSTS)
def test_tf_config_names_the_hosts_as_the_time_did(generation: str, domain: str) -> None:
    manifest = of(generation, {"Chief": 1, "PS": 1, "Worker": 1, "Evaluator": 1})
    host = HOSTS[generation, domain].format

    assert tf_config(manifest, WORKER_0, domain) == (
        f'{{"cluster":{{"chief":["{host("chief-0")}"],"ps":["{host("ps-0")}"],"worker":["{host("worker-0")}"]}},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )


@pytest.mark.parametrize(("generation", "is_told"), [(ALPHA, True), (BETA_1, True), (BETA_2, True), (FLAT, False)])
def test_a_replica_without_others_was_told_about_itself_until_tf_operator_0_7(
    generation: str, *, is_told: bool
) -> None:
    config = tf_config(of(generation), WORKER_0)

    assert (config is not None) == is_told
    assert config is None or json.loads(config)["cluster"].keys() == {"worker"}


@pytest.mark.parametrize("generation", OLD)
def test_another_port_of_that_name_is_the_one_that_others_are_told(generation: str) -> None:
    ports = [{"name": "other", "containerPort": 1}, {"name": "tfjob-port", "containerPort": 3333}]

    config = tf_config(of(generation, {"Worker": {"template": template(ports=ports)}}), WORKER_0)

    assert config is not None
    assert ':3333"' in config


@pytest.mark.parametrize("generation", [*OLD, FLAT])
def test_exit_codes_mean_what_they_did_before_training_operator_1_5(generation: str) -> None:
    table = dialect_of(of(generation)).exit_codes

    retried = {code for code in (0, 1, 2, 126, 127, 128, 130, 137, 138, 139, 143, 255)
               if table(code) is ExitClass.RETRYABLE}  # fmt: skip
    assert retried == {130, 137, 138, 143}
    assert table(137, "OOMKilled") is ExitClass.RETRYABLE


@pytest.mark.parametrize("generation", [*OLD, FLAT])
def test_conditions_have_the_reasons_of_tf_operator(generation: str) -> None:
    reason = dialect_of(of(generation)).condition_reason

    assert [reason(word) for word in ("Created", "Succeeded", "Invalid")] == [
        "TFJobCreated",
        "TFJobSucceeded",
        "InvalidTFJobSpec",
    ]


@pytest.mark.parametrize(
    ("generation", "counts"), [(ALPHA, "tfReplicaStatuses"), (BETA_1, "replicaStatuses"), (BETA_2, "replicaStatuses")]
)
def test_the_status_counts_replicas_under_the_name_of_the_time(generation: str, counts: str) -> None:
    manifest = of(generation)
    said = ConditionUpdate("Running", True, "TFJobRunning", "TFJob dist is running")
    status = JobStatus(
        conditions=set_condition((), said, NOW),
        replica_statuses={WORKER: ReplicaStatus(active=2, succeeded=1)},
        start_time=NOW,
        completion_time=NOW,
    )

    assert dialect_of(manifest).status_fields(job_of(manifest), status) == {
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "TFJobRunning",
                "message": "TFJob dist is running",
                "lastUpdateTime": "2018-06-01T12:00:00Z",
                "lastTransitionTime": "2018-06-01T12:00:00Z",
            }
        ],
        counts: {"Worker": {"active": 2, "succeeded": 1, "failed": 0}},
        "startTime": "2018-06-01T12:00:00Z",
        "completionTime": "2018-06-01T12:00:00Z",
    }


@pytest.mark.parametrize("generation", OLD)
def test_each_is_refused_what_was_refused_at_all_times(generation: str) -> None:
    assert problems(of(generation, {"PS": 1})) == [
        "spec.tfReplicaSpecs: a job of PS alone never ends; add a Worker or a Chief"
    ]
