"""On a real control plane: what Tarragon can't do yet fails a new job, and ends none that runs."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.port import Selector
from tarragon.kube.core import PODS
from tarragon.kube.meta import Resource
from tests.real.ground import TFJOBS, Ground, a_ground, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

EVENTS = Resource(group="", version="v1", plural="events", kind="Event", model=dict)
WORDS = "fractions of GPUs are not supported yet; ask for whole GPUs with nvidia.com/gpu, or remove it"
MARK = {"kubeshare/gpu_request": "0.5"}
AT = 'spec.tfReplicaSpecs.Worker.template.metadata.annotations["kubeshare/gpu_request"]'


def sharing(replicas: int, **spec: Any) -> dict[str, Any]:
    made = group(replicas, **spec)
    return {**made, "template": {"metadata": {"annotations": MARK}, **made["template"]}}


async def warnings(ground: Ground, name: str) -> list[str]:
    found = (await ground.http.list(EVENTS, Selector(namespace=ground.namespace))).items
    return [each["message"] for each in found if each["involvedObject"]["name"] == name and each["type"] == "Warning"]


async def test_a_job_that_asks_for_a_share_of_a_gpu_fails_and_one_that_runs_goes_on(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "shares") as ground:
        await ground.node("n")
        ground.start_operator()
        here: dict[str, Any] = {"nodeSelector": {"ground": ground.namespace}}
        await ground.submit("old", Worker=group(2, **here))
        await ground.until(lambda: ground.status("old").running_replicas == 2)

        await ground.submit("new", Worker=sharing(2, **here))
        await ground.until_phase("new", "Failed")
        failed = ground.condition("new", "Failed")
        assert failed is not None
        assert (failed.reason, failed.message) == ("TFJobFailedValidation", f"{AT}: {WORDS}")
        assert set(ground.made()) == {"old-worker-0", "old-worker-1"}
        assert ground.status("new").admission is None

        marked = {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"metadata": {"annotations": MARK}}}}}}
        await ground.patch(TFJOBS, "old", marked)
        await ground.until(lambda: ground.condition("old", "SpecRefused") is not None)
        await ground.delete(PODS, "old-worker-1")
        await ground.until(lambda: ground.made()["old-worker-1"] == 2 and ground.status("old").running_replicas == 2)
        await ground.ends("old-worker-0")
        await ground.until_phase("old", "Succeeded")
        assert ground.made()["old-worker-0"] == 1

        assert await warnings(ground, "new") == [f"{AT}: {WORDS}"]
        assert await warnings(ground, "old") == [
            f"{AT}: {WORDS}; the job had started before this was refused and runs on"
        ]
