from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.middleware.instrumented import CallResult, InstrumentedClient
from tarragon.kube.core import EVENTS
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import Key
from tests.localcluster.controllers.world import EmbeddedCluster, a_world

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
    events, calls = recorder(world)
    for _ in range(3):
        await events.record(QUOTA)

    await world.until(lambda: counts(world) == {"FailedCreatePod": 3})
    assert calls.verbs == ["create", "patch", "patch"]


async def test_repetitions_while_an_event_is_written_are_all_counted(world: EmbeddedCluster) -> None:
    events, calls = recorder(world)
    await asyncio.gather(*(events.record(QUOTA) for _ in range(5)))

    await world.until(lambda: counts(world) == {"FailedCreatePod": 5})
    assert calls.verbs == ["create", "patch"]


async def test_an_operator_counts_on_from_where_the_one_before_it_was(world: EmbeddedCluster) -> None:
    first, _ = recorder(world)
    await first.record(QUOTA)
    await first.record(QUOTA)
    second, calls = recorder(world)
    await second.record(QUOTA)

    await world.until(lambda: counts(world) == {"FailedCreatePod": 3})
    assert "get" not in calls.verbs


async def test_an_event_that_the_server_has_forgotten_is_told_anew(world: EmbeddedCluster) -> None:
    events, _ = recorder(world)
    await events.record(QUOTA)
    (what,) = [what for what in world.objects if what.startswith("events/")]
    await world.delete(EVENTS, what.rpartition("/")[2])
    await events.record(QUOTA)

    await world.until(lambda: counts(world) == {"FailedCreatePod": 1})


async def test_a_state_that_lasts_is_told_once_by_each_operator_and_never_counted(world: EmbeddedCluster) -> None:
    first, _ = recorder(world)
    second, calls = recorder(world)
    for each in (first, first, second, second):
        await each.record(ONCE)

    await world.until(lambda: counts(world) == {"LeftToOtherOperator": 1})
    assert calls.verbs == ["create", "patch"]
