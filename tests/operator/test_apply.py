from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarragon.client.errors import ApiError, Conflict, Forbidden, unavailable
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import DEFAULT_DELETE, Client, DeleteOptions
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.eviction_notice import EVICTION_TIME_ANNOTATION
from tarragon.kube.core import EVENTS, PODS, SERVICES
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.reconciler.apply import INITIAL_BATCH, ApplyContext, CreateRefused, apply
from tarragon.plan.view.actions import Actions, AnnotatePod, Create, Delete
from tests.localcluster.controllers.world import PATIENCE
from tests.operator.stage import TFJOBS, Stage, group, job

NO_EVENTS = Forbidden({"code": 403, "reason": "Forbidden", "message": "events are not for you"})


async def carried_out(stage: Stage, cluster: Client, found: CustomObject, step: Actions) -> None:
    clock = stage.world.clock
    means = ApplyContext(cluster=cluster, clock=clock, recorder=EventRecorder(cluster, clock))
    await apply(means, TENSORFLOW.resource, found, step)


class WithoutEvents(DelegatingClient):
    """An API that takes everything but events."""

    def __init__(self, client: Client, answer: ApiError) -> None:
        super().__init__(client)
        self._answer = answer

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural == EVENTS.plural:
            raise self._answer
        return await super().create(resource, body)


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
    step = Actions(
        events=[Event(involved_object=about, type="Normal", reason="Said", message="so")],
        creates=[Create(resource=PODS.with_model(dict), body=body)],
    )
    cluster = WithoutEvents(stage.world.client, answer)
    await carried_out(stage, cluster, found, step)
    await stage.until_pods("a-worker-0")


class WithoutNotes(DelegatingClient):
    """An API that lets nobody write to pods."""

    async def patch(self, resource: Any, key: Any, patch: Any, **options: Any) -> Any:
        if resource.plural == PODS.plural:
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "pods are not for you"})
        return await super().patch(resource, key, patch, **options)


async def test_who_can_not_be_told_to_leave_goes_at_once(stage: Stage) -> None:
    found = await stage.world.client.create(TFJOBS, job("a", Worker=group(1)))
    spec = {"containers": [{"name": "tensorflow", "image": "i"}]}
    pod = (await stage.world.create(PODS, "a-worker-0", spec=spec)).metadata
    go = Delete(
        resource=PODS, key=pod.key, uid=pod.uid, resource_version=pod.resource_version, reason="it has no place"
    )
    told = AnnotatePod(
        pod=pod.key,
        uid=pod.uid,
        resource_version=pod.resource_version,
        annotations={EVICTION_TIME_ANNOTATION: "2026-11-21T10:00:30Z"},
        fallback=go,
    )
    cluster = WithoutNotes(stage.world.client)
    await carried_out(stage, cluster, found, Actions(annotations=[told]))
    await stage.world.until(lambda: "a-worker-0" not in stage.pods())


class SlowToDelete(DelegatingClient):
    """An API whose first delete meets a conflict while the others are under way."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._conflict = asyncio.Event()

    async def delete(self, resource: Any, key: Any, options: DeleteOptions = DEFAULT_DELETE) -> None:
        if key.name == "a-worker-0":
            self._conflict.set()
            raise Conflict({"code": 409, "reason": "Conflict", "message": "it has changed"})
        await self._conflict.wait()
        await super().delete(resource, key, options)


async def test_a_step_that_fails_in_the_middle_waits_for_what_it_has_begun_and_tells_of_it(stage: Stage) -> None:
    found = await stage.world.client.create(TFJOBS, job("a", Worker=group(1)))
    spec = {"containers": [{"name": "tensorflow", "image": "i"}]}
    made = [(await stage.world.create(PODS, f"a-worker-{index}", spec=spec)).metadata for index in range(3)]
    go = [
        Delete(resource=PODS, key=pod.key, uid=pod.uid, resource_version=pod.resource_version, reason="it has no place")
        for pod in made
    ]
    cluster = SlowToDelete(stage.world.client)

    with pytest.raises(Conflict):
        await carried_out(stage, cluster, found, Actions(deletes=go))

    await stage.until_pods("a-worker-0")
    await stage.world.until(lambda: bool(stage.events("SuccessfulDeletePod")))
    assert all(name in stage.events("SuccessfulDeletePod")[0] for name in ("a-worker-1", "a-worker-2"))


class Deaf:
    """An API that answers nothing, once it knows the job: what is asked of it then stays under way."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_asked = asyncio.Event()

    async def create(self, resource: Any, _: Any) -> Any:
        self.asked.append(resource.plural)
        if len(self.asked) == BESIDE_EACH_OTHER:
            self.is_asked.set()
        await asyncio.Event().wait()


BESIDE_EACH_OTHER = 2
"""The first of the news, and the pod."""


async def test_who_is_to_stop_while_a_write_is_under_way_waits_for_no_answer_and_writes_nothing_more(
    stage: Stage,
) -> None:
    found = await stage.world.client.create(TFJOBS, job("a", Worker=group(1)))
    about = ObjectReference(
        api_version="kubeflow.org/v1", kind="TFJob", key=Key("default", "a"), uid=found.metadata.uid
    )
    body = {"metadata": {"name": "a-worker-0", "namespace": "default"}}
    step = Actions(
        events=[
            Event(involved_object=about, type="Normal", reason=reason, message="so") for reason in ("Said", "Again")
        ],
        creates=[Create(resource=PODS.with_model(dict), body=body)],
    )
    cluster: Any = Deaf()
    work = asyncio.create_task(carried_out(stage, cluster, found, step))
    await cluster.is_asked.wait()
    work.cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({work})
    assert work.cancelled()
    assert sorted(cluster.asked) == ["events", "pods"]


class CountingCreates(DelegatingClient):
    """An API that refuses pods, as a quota does, and counts those that are asked for at once."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.made: list[str] = []
        self.refused = 0

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural == PODS.plural:
            self.refused += 1
            raise Forbidden({"code": 403, "reason": "Forbidden", "message": "exceeded quota"})
        self.made.append(resource.plural)
        return await super().create(resource, body)


async def test_a_quota_of_pods_refuses_few_of_them_however_many_services_were_made_before(stage: Stage) -> None:
    found = await stage.world.client.create(TFJOBS, job("a", Worker=group(1)))
    spec: dict[str, Any] = {"containers": [{"name": "tensorflow", "image": "i"}]}
    creates = [
        Create(resource=kind, body={"metadata": {"name": f"a-worker-{index}", "namespace": "default"}, "spec": spec})
        for kind, spec in ((SERVICES, {"ports": [{"port": 1}]}), (PODS, spec))
        for index in range(40)
    ]
    cluster = CountingCreates(stage.world.client)

    with pytest.raises(CreateRefused):
        await carried_out(stage, cluster, found, Actions(creates=creates))

    assert cluster.made.count(SERVICES.plural) == 40
    assert cluster.refused == INITIAL_BATCH
