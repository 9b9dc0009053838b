from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.middleware.instrumented import CallResult, InstrumentedClient
from tarragon.kube.core import EVENTS
from tarragon.kube.event import MESSAGE_LIMIT, Event, ObjectReference
from tarragon.kube.meta import Key
from tarragon.operator.reconciler.recorder import EventRecorder, summary_event
from tests.localcluster.controllers.world import EmbeddedCluster, a_world
from tests.operator.stage import Stage, group

ABOUT = ObjectReference(api_version="kubeflow.org/v1", kind="TFJob", key=Key("default", "a"), uid="1")
QUOTA = Event(involved_object=ABOUT, type="Warning", reason="FailedCreatePod", message="exceeded quota")
ONCE = Event(
    involved_object=ABOUT,
    type="Normal",
    reason="LeftToOtherOperator",
    message="left to tf-operator",
    is_lasting_state=True,
)


class Calls:
    """What was asked of the API, verb by verb."""

    def __init__(self) -> None:
        self.verbs: list[str] = []

    def on_call(self, call: CallResult) -> None:
        self.verbs.append(call.verb)

    def on_watch_started(self, resource: str) -> None:
        pass

    def on_watch_event(self, resource: str) -> None:
        pass

    def on_watch_ended(self, resource: str, code: int) -> None:
        pass


def recorder(world: EmbeddedCluster) -> tuple[EventRecorder, Calls]:
    calls = Calls()
    clock = FakeClock()
    return EventRecorder(InstrumentedClient(world.client, clock, calls), clock), calls


def counts(world: EmbeddedCluster) -> dict[str, int]:
    return {event["reason"]: event["count"] for what, event in world.objects.items() if what.startswith("events/")}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with a_world(tmp_path) as world:
        yield world


async def test_what_happens_again_is_counted_at_one_call_each(world: EmbeddedCluster) -> None:
    told, calls = recorder(world)
    for _ in range(3):
        await told.record(QUOTA)

    await world.until(lambda: counts(world) == {"FailedCreatePod": 3})
    assert calls.verbs == ["create", "patch", "patch"]


async def test_an_operator_counts_on_from_where_the_one_before_it_was(world: EmbeddedCluster) -> None:
    first, _ = recorder(world)
    await first.record(QUOTA)
    await first.record(QUOTA)
    second, calls = recorder(world)
    await second.record(QUOTA)

    await world.until(lambda: counts(world) == {"FailedCreatePod": 3})
    assert "get" not in calls.verbs


async def test_an_event_that_the_server_has_forgotten_is_told_anew(world: EmbeddedCluster) -> None:
    told, _ = recorder(world)
    await told.record(QUOTA)
    (what,) = [what for what in world.objects if what.startswith("events/")]
    await world.delete(EVENTS, what.rpartition("/")[2])
    await told.record(QUOTA)

    await world.until(lambda: counts(world) == {"FailedCreatePod": 1})


async def test_a_state_that_lasts_is_told_once_by_each_operator_and_never_counted(world: EmbeddedCluster) -> None:
    first, _ = recorder(world)
    second, calls = recorder(world)
    for each in (first, first, second, second):
        await each.record(ONCE)

    await world.until(lambda: counts(world) == {"LeftToOtherOperator": 1})
    assert calls.verbs == ["create", "patch"]


async def test_a_job_tells_what_was_made_for_it_and_what_was_removed(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    await stage.submit("a", PS=group(1), Worker=group(2), runPolicy={"cleanPodPolicy": "All"})
    await stage.until_pods("a-ps-0", "a-worker-0", "a-worker-1")
    await stage.world.until(
        lambda: bool(stage.events("SuccessfulCreatePod") and stage.events("SuccessfulCreateService"))
    )

    assert stage.events("SuccessfulCreatePod") == ["Created pods: a-ps-0, a-worker-0, a-worker-1"]
    assert stage.events("SuccessfulCreateService") == ["Created services: a-ps-0, a-worker-0, a-worker-1"]
    await stage.all_run("a-ps-0", "a-worker-0", "a-worker-1")
    await stage.until_state("a", "Running")
    await stage.plays("a-worker-0", "Succeeded", 0)
    await stage.world.until(lambda: len(stage.events("SuccessfulDeletePod")) == 1)
    assert stage.events("SuccessfulDeletePod") == ["Deleted pods: a-ps-0, a-worker-0, a-worker-1"]


def test_one_pod_is_told_as_old_operators_told_it() -> None:
    event = summary_event(ABOUT, "Create", "Pod", ["a-worker-0"])

    assert (event.type, event.reason, event.message) == ("Normal", "SuccessfulCreatePod", "Created pod: a-worker-0")


def test_of_very_many_pods_as_many_are_named_as_fit_and_the_rest_is_counted() -> None:
    names = [f"a-worker-{number}" for number in range(500)]
    message = summary_event(ABOUT, "Create", "Pod", names).message

    assert len(message) <= MESSAGE_LIMIT
    shown = message.removeprefix("Created pods: ").partition(" and ")[0].split(", ")
    assert shown == names[: len(shown)]
    assert message.endswith(f" and {500 - len(shown)} more")
    assert len(shown) > 50


def test_a_job_that_was_kept_long_enough_is_told_to_be_deleted() -> None:
    assert summary_event(ABOUT, "Delete", "TFJob", ["a"]).reason == "SuccessfulDeleteJob"
