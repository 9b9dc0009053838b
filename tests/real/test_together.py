"""Gangs that are made anew as one on a real control plane, whose operators are killed meanwhile; and kubectl scale."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tarragon.client.port import DeleteOptions
from tarragon.job.annotations import RESIZE_ANNOTATION, RESTART_ANNOTATION
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.plan.objects.gang_round import round_of
from tests.real.scene import TFJOBS, Scene, a_scene, tfjob
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(300)]

GANG = ("a-ps-0", "a-worker-0", "a-worker-1", "a-worker-2")
KILLS = 6


def job(annotation: dict[str, str], workers: int) -> dict[str, Any]:
    body = tfjob("a", workers=workers, policy="OnFailure")
    body["metadata"]["annotations"] = annotation
    return body


def rounds(scene: Scene) -> Counter[int]:
    return Counter(round_of(pod) for pod in scene.pods.objects.values())


def run_in(scene: Scene, number: int, size: int) -> bool:
    """Whether all replicas run in this round, and the operator has recorded that the gang is complete, if it restarts
    as one: a pod that is lost before is only created again.
    """
    found = scene.jobs.objects.get(Key("default", "a"))
    status = decode_status(None if found is None else found.status)
    gang = status.gang_round
    is_complete = gang is None or (gang.number == number and gang.was_complete)
    return is_complete and status.running_replicas == size and rounds(scene) == {number: size}


def typed(plane: ControlPlane, *words: str) -> None:
    subprocess.run(["kubectl", "--kubeconfig", str(plane.kubeconfig), *words], check=True, timeout=90)


async def test_operators_that_are_killed_while_a_gang_restarts_leave_no_half_of_it(
    emptied_control_plane: ControlPlane,
) -> None:
    moments = random.Random()
    async with a_scene(emptied_control_plane) as scene:
        mixed: list[Counter[int]] = []
        scene.pods.add_event_handler(lambda *_: mixed.append(rounds(scene)) if len(rounds(scene)) > 1 else None)
        operator = await scene.operator(None, "--no-leader-elect")
        await scene.http.create(TFJOBS, job({RESTART_ANNOTATION: "gang"}, 3))
        await scene.until(lambda: run_in(scene, 0, 4))

        for number in range(1, KILLS + 1):
            await scene.http.delete(PODS, Key("default", "a-worker-1"), DeleteOptions(grace_period_seconds=0))
            await scene.clock.sleep(moments.random() / 2)
            operator.send(signal.SIGKILL)
            await operator.ended()
            operator = await scene.operator(None, "--no-leader-elect")
            await scene.until(lambda number=number: run_in(scene, number, 4))  # type: ignore[misc]

        assert mixed == []
        found = await scene.http.get(TFJOBS, Key("default", "a"))
        assert found.status["tarragon"]["restarts"] == {"total": 0}
        assert scene.made() == Counter(dict.fromkeys(GANG, KILLS + 1))


@pytest.mark.kubectl
async def test_kubectl_scale_makes_a_job_grow_by_a_restart_where_its_user_allows_that(
    emptied_control_plane: ControlPlane,
) -> None:
    async with a_scene(emptied_control_plane) as scene:
        await scene.operator(None, "--no-leader-elect")
        await scene.http.create(TFJOBS, job({}, 2))
        await scene.until(lambda: run_in(scene, 0, 3))
        kubectl = partial(typed, emptied_control_plane)
        await asyncio.to_thread(kubectl, "scale", "tfjob/a", "--replicas=3")
        await asyncio.to_thread(kubectl, "wait", "tfjob/a", "--for=condition=NotGrown", "--timeout=60s")
        assert rounds(scene) == {0: 3}

        await asyncio.to_thread(kubectl, "annotate", "tfjob/a", f"{RESIZE_ANNOTATION}=restart")
        await scene.until(lambda: run_in(scene, 1, 4))
        assert set(scene.uids()) == set(GANG)
