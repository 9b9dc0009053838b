"""On a real control plane: a job whose request for a share of a GPU is invalid fails, and one that runs goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.client.port import Selector
from tarragon.kube.meta import Resource
from tests.real.environment import TFJOBS, OperatorEnvironment, an_environment, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

EVENTS = Resource(group="", version="v1", plural="events", kind="Event", model=dict)
MARK = {"kubeshare/gpu_request": "0.5"}
AT = 'spec.tfReplicaSpecs.Worker.template.metadata.annotations["kubeshare/gpu_limit"]'
MISSING = f'{AT}: is missing; write for example "0.5"'


def sharing(replicas: int, **spec: Any) -> dict[str, Any]:
    made = group(replicas, **spec)
    return {**made, "template": {"metadata": {"annotations": MARK}, **made["template"]}}


async def warnings(env: OperatorEnvironment, name: str) -> list[str]:
    found = (await env.http.list(EVENTS, Selector(namespace=env.namespace))).items
    return [each["message"] for each in found if each["involvedObject"]["name"] == name and each["type"] == "Warning"]


async def test_a_job_with_an_invalid_share_fails_and_one_that_is_edited_so_goes_on(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "shares") as env:
        await env.node("n")
        env.start_operator()
        here: dict[str, Any] = {"nodeSelector": {"test-env": env.namespace}}
        await env.submit("old", Worker=group(2, **here))
        await env.until(lambda: env.status("old").running_replicas == 2)

        await env.submit("new", Worker=sharing(2, **here))
        await env.until_phase("new", "Failed")
        failed = env.condition("new", "Failed")
        assert failed is not None
        assert (failed.reason, failed.message) == ("TFJobFailedValidation", MISSING)
        assert set(env.made()) == {"old-worker-0", "old-worker-1"}
        assert env.status("new").admission is None

        marked = {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"metadata": {"annotations": MARK}}}}}}
        await env.patch(TFJOBS, "old", marked)
        await env.until(lambda: env.condition("old", "SpecRefused") is not None)
        await env.ends("old-worker-0")
        await env.until_phase("old", "Succeeded")
        assert env.made()["old-worker-0"] == 1

        assert await warnings(env, "new") == [MISSING]
        assert [message.startswith(MISSING) for message in await warnings(env, "old")] == [True]
