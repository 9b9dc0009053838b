"""Pods that are there and do not get to run: a real API server and kubectl show it, statuses are as of kubelets."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tarragon.kube.core import PODS
from tarragon.plan.objects.settings import OperatorSettings
from tests.real.ground import Ground, a_ground, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(180)]

Json = dict[str, Any]
SHORT = OperatorSettings(creation_timeout=60, start_timeout=3)
MISSING = 'failed to pull and unpack image "docker.io/library/train:2": not found'


async def waits(ground: Ground, pod: str, reason: str, message: str) -> None:
    container = {"name": "tensorflow", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    waiting = {"waiting": {"reason": reason, "message": message}}
    status = {"phase": "Pending", "containerStatuses": [{**container, "state": waiting}]}
    await ground.patch(PODS, pod, {"status": status}, subresource="status")


async def kubectl(ground: Ground, *words: str) -> str:
    command = ["kubectl", "--kubeconfig", str(ground.plane.kubeconfig), "-n", ground.namespace, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221


async def test_an_image_that_is_not_there_stands_in_the_columns_and_frees_the_places_for_those_behind(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "image") as ground:
        ground.starts_pods = False
        await ground.node("n", cpu="3")
        ground.start_operator(SHORT)
        wanted: Json = {"nodeSelector": {"ground": ground.namespace}}
        await ground.submit("gang", PS=group(1, **wanted), Worker=group(2, **wanted))
        await ground.until(lambda: len(ground.pods) == 3)
        for index in (0, 1):
            await waits(ground, f"gang-worker-{index}", "ErrImagePull", MISSING)
        await ground.until(lambda: ground.condition("gang", "Blocked") is not None)
        await ground.until(lambda: "all 2" in getattr(ground.status("gang").blocker, "message", ""))

        head, row = (await kubectl(ground, "get", "tfjobs", "-o", "wide")).splitlines()
        assert head.split() == ["NAME", "STATE", "READY", "RESTARTS", "AGE", "REASON", "MESSAGE"]
        assert row.split()[:4] == ["gang", "Starting", "0/3", "0"]
        assert row.rstrip().endswith(f"ImagePullBackOff   all 2 workers: {MISSING}")

        await ground.submit("behind", Worker=group(1, **wanted))
        await ground.until(lambda: ground.waits_for("gang") == "ImagePullBackOff")
        # Else they are started in the moment before they are deleted.
        await ground.until(lambda: not any(name.startswith("gang-") for name in ground.pods))
        ground.starts_pods = True
        await ground.until_phase("behind", "Running")
        head, *rows = (await kubectl(ground, "get", "tfjobs")).splitlines()
        told = {row.split()[0]: row.split() for row in rows}
        assert told["gang"][1:4] + told["gang"][5:] == ["Waiting", "0/3", "0", "ImagePullBackOff"]
        assert told["behind"][5:] == []
        events = await kubectl(ground, "get", "events", "-o", "custom-columns=R:.reason,M:.message", "--no-headers")
        assert f"ImagePullBackOff all 2 workers: {MISSING}" in " ".join(events.split())


async def test_a_claim_that_is_not_there_is_told_in_the_words_of_the_scheduler(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "claim") as ground:
        ground.starts_pods = False
        await ground.node("n")
        ground.start_operator(SHORT)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "lost"}}]
        await ground.submit("a", Worker=group(1, volumes=volumes))
        await ground.until(lambda: len(ground.pods) == 1)
        scheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": 'persistentvolumeclaim "lost" not found',
        }
        assert "nodeName" not in ground.pods["a-worker-0"]["spec"]
        await ground.patch(PODS, "a-worker-0", {"status": {"conditions": [scheduled]}}, subresource="status")
        await ground.until(lambda: ground.status("a").blocker is not None)

        described = await kubectl(ground, "describe", "tfjob", "a")
        assert "Unschedulable" in described
        assert 'persistentvolumeclaim "lost" not found' in described


async def test_who_runs_out_of_memory_again_and_again_is_told_and_keeps_its_place(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "loop") as ground:
        await ground.node("n")
        ground.start_operator(SHORT)
        await ground.submit("a", Worker=group(2, policy="OnFailure"))
        await ground.until(lambda: ground.status("a").running_replicas == 2)
        last = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "step 41\nstep 42\n"}}
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
        container = {"name": "tensorflow", "image": "i", "imageID": "", "ready": False, "restartCount": 3}
        status = {"phase": "Running", "containerStatuses": [{**container, "state": waiting, "lastState": last}]}
        await ground.patch(PODS, "a-worker-1", {"status": status}, subresource="status")
        await ground.until(lambda: ground.condition("a", "Stalled") is not None)

        stalled = ground.condition("a", "Stalled")
        assert stalled is not None
        assert stalled.message == "worker-1: exit code 137 (OOMKilled), after 3 restarts: step 42"
        _, row = (await kubectl(ground, "get", "tfjobs")).splitlines()
        assert row.split()[1:4] + row.split()[5:] == ["Running", "1/2", "3", "CrashLoopBackOff"]
        assert ground.status("a").blocker is None
