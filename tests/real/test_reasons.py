"""Pods that are there and do not get to run: a real API server and kubectl show it, statuses are as of kubelets."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tarragon.kube.core import PODS
from tarragon.plan.objects.settings import OperatorSettings
from tests.real.environment import TFJOBS, OperatorEnvironment, an_environment, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(180)]

Json = dict[str, Any]
SHORT = OperatorSettings(creation_timeout=60, start_timeout=10)
MISSING = 'failed to pull and unpack image "docker.io/library/train:2": not found'


async def waits(env: OperatorEnvironment, pod: str, reason: str, message: str) -> None:
    container = {"name": "tensorflow", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    waiting = {"waiting": {"reason": reason, "message": message}}
    status = {"phase": "Pending", "containerStatuses": [{**container, "state": waiting}]}
    await env.patch(PODS, pod, {"status": status}, subresource="status")


async def kubectl(env: OperatorEnvironment, *words: str) -> str:
    command = ["kubectl", "--kubeconfig", str(env.plane.kubeconfig), "-n", env.namespace, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221


async def test_an_image_that_is_not_there_stands_in_the_columns_and_frees_the_places_for_those_behind(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "image") as env:
        env.starts_pods = False
        await env.node("n", cpu="3")
        env.start_operator(SHORT)
        wanted: Json = {"nodeSelector": {"test-env": env.namespace}}
        await env.submit("gang", PS=group(1, **wanted), Worker=group(2, **wanted))
        await env.until(lambda: len(env.pods) == 3)
        for index in (0, 1):
            await waits(env, f"gang-worker-{index}", "ErrImagePull", MISSING)
        await env.until(lambda: env.condition("gang", "Blocked") is not None)
        await env.until(lambda: "all 2" in getattr(env.status("gang").obstacle, "message", ""))

        head, row = (await kubectl(env, "get", "tfjobs", "-o", "wide")).splitlines()
        assert head.split() == ["NAME", "STATE", "READY", "RESTARTS", "AGE", "PROGRESS", "REASON", "MESSAGE"]
        assert row.split()[:4] == ["gang", "Starting", "0/3", "0"]
        assert row.rstrip().endswith(f"ImagePullBackOff   all 2 workers: {MISSING}")

        await env.submit("behind", Worker=group(1, **wanted))
        await env.until(lambda: env.waits_for("gang") == "ImagePullBackOff")
        # Before it is queued again, which gives another reason: nothing goes on here while kubectl runs.
        await env.until_there_is(TFJOBS, "gang", lambda found: found["status"]["tarragon"]["state"] == "Waiting")
        _, row = (await kubectl(env, "get", "tfjob", "gang")).splitlines()
        told = row.split()
        assert told[:4] + told[5:] == ["gang", "Waiting", "0/3", "0", "ImagePullBackOff"]
        # Else they are started in the moment before they are deleted.
        await env.until(lambda: not any(name.startswith("gang-") for name in env.pods))
        env.starts_pods = True
        await env.until_phase("behind", "Running")
        _, row = (await kubectl(env, "get", "tfjob", "behind")).splitlines()
        assert row.split()[5:] == []
        events = await kubectl(env, "get", "events", "-o", "custom-columns=R:.reason,M:.message", "--no-headers")
        assert f"ImagePullBackOff all 2 workers: {MISSING}" in " ".join(events.split())


async def test_a_claim_that_is_not_there_is_told_in_the_words_of_the_scheduler(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "claim") as env:
        env.starts_pods = False
        await env.node("n")
        env.start_operator(SHORT)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "lost"}}]
        await env.submit("a", Worker=group(1, volumes=volumes))
        await env.until(lambda: len(env.pods) == 1)
        scheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": 'persistentvolumeclaim "lost" not found',
        }
        assert "nodeName" not in env.pods["a-worker-0"]["spec"]
        await env.patch(PODS, "a-worker-0", {"status": {"conditions": [scheduled]}}, subresource="status")
        await env.until(lambda: env.status("a").obstacle is not None)

        described = await kubectl(env, "describe", "tfjob", "a")
        assert "Unschedulable" in described
        assert 'persistentvolumeclaim "lost" not found' in described


async def test_who_runs_out_of_memory_again_and_again_is_told_and_keeps_its_place(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "loop") as env:
        await env.node("n")
        env.start_operator(SHORT)
        await env.submit("a", Worker=group(2, policy="OnFailure"))
        await env.until(lambda: env.status("a").running_replicas == 2)
        last = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "step 41\nstep 42\n"}}
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
        container = {"name": "tensorflow", "image": "i", "imageID": "", "ready": False, "restartCount": 3}
        status = {"phase": "Running", "containerStatuses": [{**container, "state": waiting, "lastState": last}]}
        await env.patch(PODS, "a-worker-1", {"status": status}, subresource="status")
        await env.until(lambda: env.condition("a", "Stalled") is not None)

        stalled = env.condition("a", "Stalled")
        assert stalled is not None
        assert stalled.message == "worker-1: exit code 137 (OOMKilled), after 3 restarts: step 42"
        _, row = (await kubectl(env, "get", "tfjobs")).splitlines()
        assert row.split()[1:4] + row.split()[5:] == ["Running", "1/2", "3", "CrashLoopBackOff"]
        assert env.status("a").obstacle is None
