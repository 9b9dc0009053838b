"""The view of the scheduler that `why` builds from lists of the cluster."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import pytest

from tarragon.base.clock import FakeClock
from tarragon.cli.explain.scheduler_view import build_scheduler_view
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector
from tarragon.kube.meta import Key, Resource
from tarragon.scheduling.api.rules import SchedulingRules

T = TypeVar("T")


class Unreadable:
    """A cluster whose answers cannot be decoded."""

    async def get(self, resource: Resource[T], key: Key) -> T:
        raise ValueError(f"{resource.full_name} {key.name} is no JSON")

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        raise ValueError(f"{resource.full_name} of {selection} are no JSON")


async def test_whatever_a_list_fails_with_ends_the_wait_for_the_view() -> None:
    view = build_scheduler_view(Unreadable(), "default", FakeClock(), SchedulingRules())

    with pytest.raises(ValueError, match="are no JSON"):
        await asyncio.wait_for(view, 30)
