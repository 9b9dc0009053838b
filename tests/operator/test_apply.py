from __future__ import annotations

from typing import Any

import pytest

from tarragon.cluster.errors import ApiError, Forbidden, unavailable
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import EVENTS, PODS
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import Key
from tarragon.operator.apply import apply
from tarragon.operator.recorder import Recorder
from tarragon.plan.step import Create, Step
from tests.operator.stage import TFJOBS, Stage, group, job

NO_EVENTS = Forbidden({"code": 403, "reason": "Forbidden", "message": "events are not for you"})


class WithoutEvents:
    """An API that takes everything but events."""

    def __init__(self, client: Any, answer: ApiError) -> None:
        self._client = client
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural == EVENTS.plural:
            raise self._answer
        return await self._client.create(resource, body)


@pytest.mark.parametrize("answer", [NO_EVENTS, unavailable("the server is busy")])
async def test_an_event_that_cannot_be_written_keeps_no_pod_from_being_made(stage: Stage, answer: ApiError) -> None:
    found = await stage.world.client.create(TFJOBS, job("a", Worker=group(1)))
    about = ObjectReference(
        api_version="kubeflow.org/v1", kind="TFJob", key=Key("default", "a"), uid=found.metadata.uid
    )
    body = {
        "metadata": {"name": "a-worker-0", "namespace": "default"},
        "spec": {"containers": [{"name": "tensorflow", "image": "i"}]},
    }
    step = Step(
        events=[Event(about=about, type="Normal", reason="Said", message="so")],
        creates=[Create(resource=PODS.reading(dict), body=body)],
    )
    cluster: Any = WithoutEvents(stage.world.client, answer)
    await apply(cluster, Recorder(cluster, stage.world.clock), TENSORFLOW.resource, found, step)
    await stage.until_pods("a-worker-0")
