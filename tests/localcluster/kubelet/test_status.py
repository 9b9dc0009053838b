from __future__ import annotations

import datetime as dt
from typing import Any

from tarragon.kube.merge_patch import create_merge_patch
from tarragon.localcluster.kubelet.base.pod_lifecycle import (
    Backoff,
    DesiredState,
    ExitStatus,
    Run,
    RuntimeStatus,
    StartFailure,
)
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.pod.status import PodFailure, StatusFacts, owned_fields, pod_status
from tests.localcluster.kubelet.builders import container_json, pod

NOW = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(minutes=5)
RUNNING = RuntimeStatus(run=Run(number=0, identity="id-0", started=NOW))


def ended(code: int, *, number: int = 0, backoff: float = 0, **fields: Any) -> RuntimeStatus:
    outcome = ExitStatus(code=code, started=NOW, finished=LATER, reason="Completed" if code == 0 else "Error", **fields)
    run = Run(number=number, identity=f"id-{number}", started=NOW, outcome=outcome)
    return RuntimeStatus(run=run, ended=LATER, backoff=Backoff(backoff, NOW) if backoff else None)


def status_of(
    described: Pod,
    *,
    course: DesiredState = DesiredState.RUN,
    verdict: PodFailure | None = None,
    **lives: RuntimeStatus,
) -> Any:
    return pod_status(described, StatusFacts(statuses=lives, course=course, verdict=verdict, started=NOW), LATER)


def conditions(status: Any) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def condition(status: Any, kind: str) -> Any:
    return next(each for each in status["conditions"] if each["type"] == kind)


def test_the_container_of_a_new_pod_is_being_created() -> None:
    status = status_of(pod(), main=RuntimeStatus())

    assert (status["phase"], status["podIP"], status["startTime"]) == ("Pending", "127.0.0.1", "2026-11-21T10:00:00Z")
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions(status) == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "False",
        "ContainersReady": "False",
        "PodScheduled": "True",
    }
    assert condition(status, "Ready")["message"] == "containers with unready status: [main]"


def test_a_running_pod_is_ready() -> None:
    status = status_of(pod(), main=RUNNING)

    container = status["containerStatuses"][0]
    assert status["phase"] == "Running"
    assert set(conditions(status).values()) == {"True"}
    assert (container["ready"], container["started"], container["restartCount"]) == (True, True, 0)
    assert container["state"] == {"running": {"startedAt": "2026-11-21T10:00:00Z"}}
    assert container["containerID"] == "tarragon://id-0"
    assert container["lastState"] == {}


def test_a_finished_pod_reports_how_its_container_ended() -> None:
    status = status_of(pod(restartPolicy="Never"), main=ended(137, signal=9, message="last words"))

    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"] == {
        "terminated": {
            "exitCode": 137,
            "signal": 9,
            "reason": "Error",
            "message": "last words",
            "startedAt": "2026-11-21T10:00:00Z",
            "finishedAt": "2026-11-21T10:05:00Z",
            "containerID": "tarragon://id-0",
        }
    }


def test_a_succeeded_pod_is_not_ready_but_completed() -> None:
    status = status_of(pod(restartPolicy="Never"), main=ended(0))

    assert status["phase"] == "Succeeded"
    assert [(each["type"], each["status"], each.get("reason")) for each in status["conditions"]] == [
        ("PodReadyToStartContainers", "False", None),
        ("Initialized", "True", "PodCompleted"),
        ("Ready", "False", "PodCompleted"),
        ("ContainersReady", "False", "PodCompleted"),
        ("PodScheduled", "True", None),
    ]


def test_a_container_in_back_off_reports_its_delay_and_last_exit() -> None:
    status = status_of(pod(), main=ended(1, number=3, backoff=80))

    container = status["containerStatuses"][0]
    assert container["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 1m20s restarting failed container=main pod=p_default(uid-of-p)",
    }
    assert container["lastState"]["terminated"]["exitCode"] == 1
    assert container["restartCount"] == 3
    assert status["phase"] == "Running"


def test_a_container_that_cannot_start_reports_why() -> None:
    trouble = StartFailure(
        reason="CreateContainerConfigError", message='configmap "x" not found', since=NOW, until=LATER
    )

    status = status_of(pod(), main=RuntimeStatus(start_failure=trouble))

    waiting = status["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "x" not found'}


def test_the_last_state_is_that_of_the_previous_run() -> None:
    before = ended(7).run
    status = status_of(pod(), main=RuntimeStatus(run=Run(number=1, identity="id-1", started=NOW), previous=before))

    container = status["containerStatuses"][0]
    assert container["lastState"]["terminated"]["exitCode"] == 7
    assert container["lastState"]["terminated"]["containerID"] == "tarragon://id-0"
    assert container["containerID"] == "tarragon://id-1"


def test_main_containers_wait_while_init_containers_run() -> None:
    described = pod(initContainers=[container_json(name="one"), container_json(name="two")])

    status = status_of(described, one=RUNNING, two=RuntimeStatus(), main=RuntimeStatus())

    assert status["phase"] == "Pending"
    assert conditions(status)["Initialized"] == "False"
    assert condition(status, "Initialized")["message"] == "containers with incomplete status: [one two]"
    assert status["initContainerStatuses"][1]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_rejected_pod_is_failed_with_the_reason() -> None:
    verdict = PodFailure(reason="OutOfmemory", message="too much")

    status = status_of(pod(), course=DesiredState.STOP, verdict=verdict, main=RuntimeStatus())

    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "OutOfmemory", "too much")


def test_a_pod_past_its_deadline_has_failed_whatever_its_exit_codes() -> None:
    verdict = PodFailure(reason="DeadlineExceeded", message="")

    assert status_of(pod(), course=DesiredState.STOP, verdict=verdict, main=ended(0))["phase"] == "Failed"


def test_the_phase_never_goes_back() -> None:
    described = pod(status={})
    running = Pod(metadata=described.metadata, spec=described.spec, status={"phase": "Running"})
    failed = Pod(metadata=described.metadata, spec=described.spec, status={"phase": "Failed"})

    assert status_of(running, main=RuntimeStatus())["phase"] == "Running"
    assert status_of(failed, main=RUNNING)["phase"] == "Failed"


def test_conditions_keep_their_transition_time_and_other_conditions_stay() -> None:
    stored = [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "DisruptionTarget", "status": "True", "reason": "Preempted"},
    ]
    described = pod()
    described = Pod(metadata=described.metadata, spec=described.spec, status={"conditions": stored})

    status = status_of(described, main=RUNNING)

    since = {each["type"]: each.get("lastTransitionTime") for each in status["conditions"]}
    assert since["Ready"] == "2026-11-21T10:05:00Z"
    assert since["PodScheduled"] == "2026-01-01T00:00:00Z"
    assert status["conditions"][-1] == {"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}


def test_nulls_added_by_a_server_are_no_difference() -> None:
    """A real kube-apiserver adds `lastProbeTime: null` to every condition."""
    status = status_of(pod(), main=RUNNING)
    conditions = [{"lastProbeTime": None, **each} for each in status["conditions"]]
    stored = {**status, "conditions": conditions, "qosClass": "BestEffort"}

    assert create_merge_patch(owned_fields(stored, status), status) == {}
