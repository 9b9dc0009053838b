from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5, UP_TO_TRAINING_OPERATOR_1_4, ExitCodeTable
from tarragon.job.model import RestartPolicy
from tarragon.job.replica_state import (
    PodOutcome,
    ReplicaAction,
    has_only_sidecars_left,
    replica_state,
    termination_of,
)
from tarragon.kube.codec import format_time
from tarragon.kube.core import Container, Pod

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)


def pod(phase: str, code: int | None = None, *, policy: str = "Never", **fields: Any) -> Pod:
    """A pod of a main container and a sidecar that runs on; with a code, the main one has ended."""
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "finishedAt": format_time(NOW)}}
    status = {
        "phase": phase,
        "containerStatuses": [
            {"name": "sidecar", "state": {"running": {}}},
            {"name": "tensorflow", "state": state},
        ],
        **fields.pop("status", {}),
    }
    spec = {"restartPolicy": policy, "containers": [{"name": "sidecar"}, {"name": "tensorflow"}]}
    return msgspec.convert({"metadata": fields, "spec": spec, "status": status}, Pod)


def deleted(asked: dt.datetime) -> dict[str, Any]:
    ends = asked + dt.timedelta(seconds=30)
    return {"deletionTimestamp": format_time(ends), "deletionGracePeriodSeconds": 30}


def end_of(found: Pod) -> PodOutcome | None:
    ending = termination_of(found, "tensorflow")
    return ending.outcome if ending is not None else None


def fate_of(found: Pod, policy: RestartPolicy, table: ExitCodeTable = SINCE_TRAINING_OPERATOR_1_5) -> ReplicaAction:
    return replica_state(found, "tensorflow", policy, table).action


SIDECAR = {"name": "proxy", "restartPolicy": "Always"}


def with_init_containers(found: Pod, *containers: dict[str, Any]) -> Pod:
    spec = msgspec.structs.replace(found.spec, init_containers=msgspec.convert(containers, list[Container]))
    return msgspec.structs.replace(found, spec=spec)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
def test_a_pod_on_its_way_has_not_ended(phase: str) -> None:
    assert end_of(pod(phase)) is None


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_the_main_container_decides_success_though_sidecars_run_on(policy: str) -> None:
    assert end_of(pod("Running", 0, policy=policy)) is PodOutcome.SUCCEEDED


def test_the_main_container_decides_success_though_a_sidecar_has_failed() -> None:
    assert end_of(pod("Failed", 0)) is PodOutcome.SUCCEEDED


def test_the_main_container_decides_failure_though_sidecars_run_on() -> None:
    assert end_of(pod("Running", 1)) is PodOutcome.FAILED


def test_what_the_kubelet_will_start_again_has_not_ended() -> None:
    assert end_of(pod("Running", 1, policy="OnFailure")) is None
    assert end_of(pod("Running", 0, policy="Always")) is None


def test_a_sidecar_that_ended_with_an_error_is_not_why_its_pod_failed() -> None:
    ended = {"terminated": {"exitCode": 2, "reason": "Error"}}
    inits = [{"name": "proxy", "state": ended, "restartCount": 4}, {"name": "fetch", "state": {}, "restartCount": 1}]
    failed = pod("Failed", status={"initContainerStatuses": inits, "containerStatuses": []})
    found = with_init_containers(failed, SIDECAR, {"name": "fetch"})

    ending = termination_of(found, "tensorflow")

    assert ending is not None
    assert (ending.outcome, ending.exit_code) == (PodOutcome.FAILED, None)


def test_restarts_of_a_sidecar_are_not_restarts_of_the_replica() -> None:
    inits = [{"name": "proxy", "restartCount": 4}, {"name": "fetch", "restartCount": 1}]
    found = with_init_containers(pod("Running", status={"initContainerStatuses": inits}), SIDECAR, {"name": "fetch"})

    state = replica_state(found, "tensorflow", RestartPolicy.ON_FAILURE, SINCE_TRAINING_OPERATOR_1_5)

    assert state.container_restarts == 1


def test_a_pod_ends_by_itself_when_no_container_but_sidecars_will_run_again() -> None:
    def ended(code: int) -> Pod:
        states = {"sidecar": {"terminated": {"exitCode": 0}}, "tensorflow": {"terminated": {"exitCode": code}}}
        statuses = [{"name": name, "state": state} for name, state in states.items()]
        return pod("Running", policy="OnFailure", status={"containerStatuses": statuses})

    assert has_only_sidecars_left(with_init_containers(ended(0), SIDECAR))
    assert not has_only_sidecars_left(with_init_containers(ended(1), SIDECAR))
    assert not has_only_sidecars_left(ended(0))


def test_a_failed_init_container_tells_its_own_code() -> None:
    init = {"name": "fetch", "state": {"terminated": {"exitCode": 6, "reason": "Error", "message": "no route"}}}
    found = pod("Failed", status={"initContainerStatuses": [init], "containerStatuses": []})

    ending = termination_of(found, "tensorflow")

    assert ending is not None
    assert (ending.outcome, ending.exit_code) == (PodOutcome.FAILED, 6)
    assert ending.message == "init container fetch: no route"


def test_without_a_container_of_that_name_the_first_one_decides() -> None:
    found = msgspec.convert(
        {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "train"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "train", "state": {"terminated": {}}}]},
        },
        Pod,
    )

    assert end_of(found) is PodOutcome.SUCCEEDED


@pytest.mark.parametrize(
    "reason",
    ["Evicted", "NodeLost", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "UnexpectedAdmissionError",
     "OutOfcpu", "OutOfmemory", "OutOfnvidia.com/gpu", "NodeAffinity"],
)  # fmt: skip
def test_what_the_infrastructure_did_is_no_failure(reason: str) -> None:
    found = pod("Failed", 137, status={"reason": reason, "message": "The node was low on resource: memory."})

    assert end_of(found) is PodOutcome.DISRUPTED
    for policy in RestartPolicy:
        assert fate_of(found, policy) is ReplicaAction.REPLACE


def test_kubernetes_own_mark_of_a_disruption_counts() -> None:
    target = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]

    assert end_of(pod("Failed", 143, status={"conditions": target})) is PodOutcome.DISRUPTED


@pytest.mark.parametrize(
    "message",
    ['Usage of EmptyDir volume "data" exceeds the limit "1Gi".',
     "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."],
)  # fmt: skip
def test_who_is_evicted_for_breaking_its_own_limit_has_failed(message: str) -> None:
    assert end_of(pod("Failed", status={"reason": "Evicted", "message": message})) is PodOutcome.FAILED


def test_ending_well_because_one_was_told_to_end_is_no_success() -> None:
    assert end_of(pod("Succeeded", 0, **deleted(NOW - dt.timedelta(seconds=5)))) is PodOutcome.DISRUPTED
    assert end_of(pod("Running", 0, **deleted(NOW))) is PodOutcome.DISRUPTED


def test_ending_badly_because_one_was_told_to_end_is_no_failure() -> None:
    assert end_of(pod("Failed", 143, **deleted(NOW - dt.timedelta(seconds=5)))) is PodOutcome.DISRUPTED


def test_a_grace_period_longer_than_the_calendar_says_nothing_of_when_the_deletion_was_asked_for() -> None:
    forever = {**deleted(NOW), "deletionGracePeriodSeconds": 2**63 - 1}

    assert end_of(pod("Succeeded", 0, **forever)) is PodOutcome.DISRUPTED


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 143)])
def test_on_a_node_whose_clock_is_behind_the_deletion_still_ended_it(phase: str, code: int) -> None:
    asked = NOW + dt.timedelta(seconds=5)

    assert end_of(pod(phase, code, **deleted(asked))) is PodOutcome.DISRUPTED


def test_what_ended_before_it_was_deleted_ended_by_itself() -> None:
    later = NOW + dt.timedelta(seconds=10)

    assert end_of(pod("Succeeded", 0, **deleted(later))) is PodOutcome.SUCCEEDED
    assert end_of(pod("Failed", 1, **deleted(later))) is PodOutcome.FAILED


@pytest.mark.parametrize(
    ("policy", "code", "fate"),
    [
        (RestartPolicy.NEVER, 1, ReplicaAction.FAIL_JOB),
        (RestartPolicy.NEVER, 137, ReplicaAction.FAIL_JOB),
        (RestartPolicy.ON_FAILURE, 1, ReplicaAction.REPLACE),
        (RestartPolicy.ALWAYS, 1, ReplicaAction.REPLACE),
        (RestartPolicy.EXIT_CODE, 1, ReplicaAction.FAIL_JOB),
        (RestartPolicy.EXIT_CODE, 127, ReplicaAction.FAIL_JOB),
        (RestartPolicy.EXIT_CODE, 130, ReplicaAction.REPLACE),
        (RestartPolicy.EXIT_CODE, 137, ReplicaAction.REPLACE),
        (RestartPolicy.EXIT_CODE, 138, ReplicaAction.REPLACE),
        (RestartPolicy.EXIT_CODE, 139, ReplicaAction.REPLACE),
        (RestartPolicy.EXIT_CODE, 143, ReplicaAction.REPLACE),
    ],
)
def test_the_restart_policy_says_what_follows_from_a_failure(
    policy: RestartPolicy, code: int, fate: ReplicaAction
) -> None:
    assert fate_of(pod("Failed", code), policy) is fate


def test_the_older_table_of_exit_codes_takes_a_segmentation_fault_for_permanent() -> None:
    assert fate_of(pod("Failed", 139), RestartPolicy.EXIT_CODE, UP_TO_TRAINING_OPERATOR_1_4) is ReplicaAction.FAIL_JOB
    assert fate_of(pod("Failed", 138), RestartPolicy.EXIT_CODE, UP_TO_TRAINING_OPERATOR_1_4) is ReplicaAction.REPLACE


def test_a_failure_without_an_exit_code_is_judged_as_its_generation_did() -> None:
    found = pod("Failed", status={"containerStatuses": []})

    assert fate_of(found, RestartPolicy.EXIT_CODE, SINCE_TRAINING_OPERATOR_1_5) is ReplicaAction.REPLACE
    assert fate_of(found, RestartPolicy.EXIT_CODE, UP_TO_TRAINING_OPERATOR_1_4) is ReplicaAction.FAIL_JOB


def is_rejected(found: Pod) -> bool:
    return replica_state(found, "tensorflow", RestartPolicy.NEVER, SINCE_TRAINING_OPERATOR_1_5).is_rejected_by_kubelet


@pytest.mark.parametrize(
    ("reason", "message"),
    [("InitContainerRestartPolicyForbidden", ""), ("PodLevelResourcesNotSupported", ""), ("PodFeatureUnsupported", ""),
     ("VolumeAttachmentLimitExceeded", ""), ("OutOfcpu", ""),
     ("AppArmor", "Pod was rejected: Cannot enforce AppArmor: it is not enabled on the host"),
     ("Evicted", "Pod was rejected: The node had condition: [DiskPressure]."),
     ("NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down.")],
)  # fmt: skip
def test_what_a_kubelet_rejects_has_neither_failed_nor_started(reason: str, message: str) -> None:
    found = pod("Failed", status={"reason": reason, "message": message, "containerStatuses": []})

    assert end_of(found) is PodOutcome.DISRUPTED
    assert is_rejected(found)
    assert fate_of(found, RestartPolicy.NEVER) is ReplicaAction.REPLACE


def test_a_rejected_pod_that_still_shows_its_containers_has_started() -> None:
    found = pod(
        "Failed", status={"reason": "NodeAffinity", "message": "Pod was rejected: Predicate NodeAffinity failed"}
    )

    assert end_of(found) is PodOutcome.DISRUPTED
    assert not is_rejected(found)


def test_a_program_that_speaks_of_a_rejection_has_failed() -> None:
    words = {"reason": "", "message": "Pod was rejected: by the program"}

    assert end_of(pod("Failed", 1, status=words)) is PodOutcome.FAILED
    assert not is_rejected(pod("Failed", 1, status=words))
