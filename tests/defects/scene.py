"""Jobs that run, for tests of what the old operators did wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.plan.world import World, manifest


def admitted(body: dict[str, Any]) -> World:
    world = World(body)
    world.settle()
    world.admit()
    world.settle()
    return world


def running(
    replicas: Mapping[str, int] | None = None,
    *,
    policy: str = "Never",
    run_policy: Mapping[str, Any] | None = None,
    **spec: Any,
) -> World:
    world = admitted(manifest(replicas or {"PS": 1, "Worker": 2}, policy=policy, run_policy=run_policy or {}, **spec))
    world.run()
    world.settle()
    return world


def event_messages(world: World, reason: str) -> list[str]:
    """The messages of the events of that reason."""
    return [event.message for event in world.events if event.reason == reason]


def state(world: World) -> str:
    return str(world.tarragon["state"])
