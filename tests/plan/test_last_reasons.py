"""Why a job failed, in words that outlive its pods."""

from __future__ import annotations

import pytest

from tests.plan.kubelets import MISSING, reports, shown_reason, started, waits
from tests.plan.world import World, manifest


def test_a_job_whose_time_was_over_before_it_got_its_image_says_so_ever_after() -> None:
    world = started(run_policy={"activeDeadlineSeconds": 100}, Worker=2)
    waits(world, 1, "ErrImagePull", MISSING)
    world.settle()
    world.pass_time(100)
    world.settle()

    failure = world.status.first_failure
    assert failure is not None
    assert (str(failure.replica), failure.exit_code, failure.reason) == ("worker-1", None, "ImagePullBackOff")
    assert failure.message == MISSING
    assert shown_reason(world) == (
        "DeadlineExceeded",
        f"the job ran longer than its activeDeadlineSeconds of 100; worker-1: ImagePullBackOff: {MISSING}",
    )


@pytest.mark.parametrize(
    ("code", "reason", "word", "message"),
    [
        (137, "OOMKilled", "OOMKilled", "worker-0: exit code 137 (killed: SIGKILL)"),
        (139, "Error", "Error", "worker-0: exit code 139 (ended by SIGSEGV)"),
        (1, "Error", "Error", "worker-0: exit code 1: step 9"),
    ],
)
def test_the_first_failure_is_the_reason_of_a_failed_job(code: int, reason: str, word: str, message: str) -> None:
    world = started(Worker=1)
    world.exit("dist-worker-0", code, message="step 8\nstep 9\n", reason=reason)
    world.settle()

    assert shown_reason(world) == (word, message)


def test_a_failed_init_container_is_the_reason_with_its_last_line() -> None:
    world = started(Worker=1)
    ended = {"terminated": {"exitCode": 6, "reason": "Error", "message": "resolving\nno route to host"}}
    reports(world, 0, {"phase": "Failed", "initContainerStatuses": [{"name": "fetch", "state": ended}]})
    world.settle()

    assert shown_reason(world) == ("Error", "worker-0: exit code 6: no route to host")
    assert world.status.first_failure is not None
    assert world.status.first_failure.message.startswith("init container fetch: resolving")


def test_a_pod_that_is_evicted_for_its_own_limit_says_evicted_whatever_its_container_says() -> None:
    world = started(Worker=1)
    words = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
    killed = {"name": "tensorflow", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
    reports(world, 0, {"phase": "Failed", "reason": "Evicted", "message": words, "containerStatuses": [killed]})
    world.settle()

    assert shown_reason(world) == ("Evicted", f"worker-0: exit code 137: {words}")


def test_init_containers_keep_their_last_words_too() -> None:
    job = manifest({"Worker": 1})
    spec = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["initContainers"] = [{"name": "fetch", "image": "curl"}]
    world = World(job)
    world.settle()
    world.admit()
    world.settle()

    [init] = world.pods["dist-worker-0"]["spec"]["initContainers"]
    assert init["terminationMessagePolicy"] == "FallbackToLogsOnError"
