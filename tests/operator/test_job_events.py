from __future__ import annotations

import asyncio
from typing import Any

from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.core import EVENTS
from tarragon.kube.event import MESSAGE_LIMIT, ObjectReference
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.reconciler.apply import summary_event
from tests.operator.stage import Stage, group

ABOUT = ObjectReference(api_version="kubeflow.org/v1", kind="TFJob", key=Key("default", "a"), uid="1")


async def test_a_job_tells_what_was_made_for_it_and_what_was_removed(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", PS=group(1), Worker=group(2), runPolicy={"cleanPodPolicy": "All"})
    await stage.until_pods("a-ps-0", "a-worker-0", "a-worker-1")
    await stage.world.until(lambda: bool(stage.events("SuccessfulCreatePod")))

    names = "a-ps-0, a-worker-0, a-worker-1"
    assert stage.events("SuccessfulCreatePod") == [f"Created pods: {names}; services of the same names"]
    await stage.all_run("a-ps-0", "a-worker-0", "a-worker-1")
    await stage.until_state("a", "Running")
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: len(stage.events("SuccessfulDeletePod")) == 1)
    assert stage.events("SuccessfulDeletePod") == [f"Deleted pods: {names}; services of the same names"]


def test_one_pod_is_told_as_old_operators_told_it() -> None:
    event = summary_event(ABOUT, "Create", {"Pod": ["a-worker-0"]})

    assert (event.type, event.reason, event.message) == ("Normal", "SuccessfulCreatePod", "Created pod: a-worker-0")


def test_of_very_many_pods_as_many_are_named_as_fit_and_the_rest_is_counted() -> None:
    names = [f"a-worker-{number}" for number in range(500)]
    message = summary_event(ABOUT, "Create", {"Pod": names}).message

    assert len(message) <= MESSAGE_LIMIT
    shown = message.removeprefix("Created pods: ").partition(" and ")[0].split(", ")
    assert shown == names[: len(shown)]
    assert message.endswith(f" and {500 - len(shown)} more")
    assert len(shown) > 50


def test_a_job_that_was_kept_long_enough_is_told_to_be_deleted() -> None:
    assert summary_event(ABOUT, "Delete", {"TFJob": ["a"]}).reason == "SuccessfulDeleteJob"


def test_one_event_tells_of_objects_of_several_kinds_the_pods_first() -> None:
    made = {"ConfigMap": ["a-config"], "Service": ["a-launcher"], "Pod": ["a-launcher", "a-worker-0"]}

    event = summary_event(ABOUT, "Create", made)

    assert event.reason == "SuccessfulCreatePod"
    assert event.message == "Created pods: a-launcher, a-worker-0; configmap: a-config; service: a-launcher"


def test_names_of_several_kinds_fit_into_one_event() -> None:
    pods, services = ([f"{kind}-{number}" for number in range(500)] for kind in ("a-worker", "b-worker"))

    message = summary_event(ABOUT, "Create", {"Service": services, "Pod": pods}).message

    assert len(message) <= MESSAGE_LIMIT
    assert "; services: b-worker-0" in message


async def test_a_job_that_is_admitted_at_once_has_two_events_until_its_pods_are_there(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", PS=group(1), Worker=group(2))
    await stage.world.until(lambda: bool(stage.events("SuccessfulCreatePod")))

    assert stage.events("TFJobCreated") == ["TFJob a is created; 3 of 3 replicas are scheduled"]
    assert stage.events("Admitted") == []


class SlowEvents(DelegatingClient):
    """An API whose events are not taken before the test says so."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.let_through = asyncio.Event()

    async def create(self, resource: Any, body: Any) -> Any:
        if resource.plural == EVENTS.plural:
            await self.let_through.wait()
        return await super().create(resource, body)


async def test_an_event_of_one_job_that_is_slow_to_be_written_holds_up_no_other_job_and_is_not_lost(
    stage: Stage,
) -> None:
    await stage.node("n")
    slow = SlowEvents(stage.world.client)
    stage.start(Operator(slow, stage.world.clock, OperatorOptions(seed=1)).run())
    await stage.submit("a", Worker=group(1))
    await stage.until_pods("a-worker-0")
    await stage.submit("b", Worker=group(1))
    await stage.until_pods("a-worker-0", "b-worker-0")

    slow.let_through.set()
    await stage.world.until(lambda: len(stage.events("TFJobCreated")) == 2)
