"""A gang on its nodes, and what their kubelets and the command line say of it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tarragon.kube.codec import format_time
from tests.plan.world import START, World, manifest

MISSING = 'rpc error: code = NotFound desc = failed to pull and unpack image "train:2": not found'


def started(policy: str = "Never", run_policy: dict[str, Any] | None = None, **replicas: int) -> World:
    """All pods are made, and on their nodes."""
    world = World(manifest(replicas or {"PS": 1, "Worker": 4}, policy=policy, run_policy=run_policy))
    world.settle()
    world.admit()
    world.settle()
    return world


def waits(world: World, index: int, reason: str, message: str = "", **more: Any) -> None:
    """As a kubelet reports a container that it can't start."""
    waiting = {"reason": reason, **({"message": message} if message else {})}
    container = {"name": "tensorflow", "ready": False, "restartCount": 0, "state": {"waiting": waiting}, **more}
    reports(world, index, {"containerStatuses": [container]})


def reports(world: World, index: int, status: dict[str, Any]) -> None:
    name = f"dist-worker-{index}"
    world.pods[name] = {**world.pods[name], "status": {"phase": "Pending", **status}}


def unready(kind: str, at: dt.datetime = START, **more: str) -> dict[str, Any]:
    return {"type": kind, "status": "False", "lastTransitionTime": format_time(at), **more}


def shown_reason(world: World) -> tuple[str, str]:
    """What kubectl and the command line show."""
    return world.tarragon.get("reason", ""), world.tarragon.get("message", "")
