"""What the server does on its own: what every cluster has from the start, old events, history out of the window."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tarragon.client.errors import ApiError
from tarragon.localcluster.api.requests import Json, Target, WriteOptions
from tarragon.localcluster.kinds.registry import Registry
from tarragon.localcluster.registry.create import Creates
from tarragon.localcluster.registry.writes import Decision, Writes, opened
from tarragon.localcluster.storage.database import WriteFailedError

EVENT_SECONDS = 3600
"""How long after its last write an event is kept, as a kube-apiserver keeps it."""

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_BY_THE_SERVER = WriteOptions(field_manager="tarragon")
_REMOVALS_AT_ONCE = 1_000


class Upkeep:
    """Work that nobody asks for."""

    def __init__(self, writes: Writes, creates: Creates, registry: Registry) -> None:
        self._writes = writes
        self._store = writes.store
        self._creates = creates
        self._registry = registry

    async def found(self) -> None:
        """Make what is missing of what every cluster has. Raises an ApiError when the disk is full."""
        namespaces = self._target("", "namespaces")
        priorities = self._target("scheduling.k8s.io", "priorityclasses")
        wanted: list[tuple[Target, str, Json]] = [(namespaces, name, {}) for name in _NAMESPACES]
        wanted += [(priorities, name, {"value": value}) for name, value in _PRIORITIES.items()]
        missing = [
            self._creates.create(target, {"metadata": {"name": name}, **content}, _BY_THE_SERVER)
            for target, name, content in wanted
            if self._store.latest(target.served.full_name, ("", name)) is None
        ]
        await asyncio.gather(*missing)

    async def tidy(self) -> None:
        """One round: old events go, the history shrinks to its window, watches that want a bookmark get one."""
        try:
            await self._writes.run(self._expired_events, _BY_THE_SERVER)
            await self._store.compact()
        except (ApiError, WriteFailedError):
            pass  # a full disk: whoever writes is told, and the next round tries again
        for shelf in self._store.shelves():
            shelf.tick()

    def _expired_events(self) -> Decision[None]:
        served = self._target("", "events").served
        horizon = self._writes.now().timestamp() - EVENT_SECONDS
        old = [one for one in self._store.latest_of(served.full_name) if one.written < horizon][:_REMOVALS_AT_ONCE]
        removals = [self._writes.removal(served, opened(one, served), one, _BY_THE_SERVER) for one in old]
        return Decision(removals, None)

    def _target(self, group: str, plural: str) -> Target:
        served = self._registry.find(group, "v1", plural)
        assert served is not None  # noqa: S101 - it is built in
        return Target(served)
