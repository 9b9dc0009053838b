"""Maintenance that no request triggers: bootstrap objects, expiry of events, and compaction of the history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tarragon.client.errors import ApiError
from tarragon.localcluster.api.requests import Json, RequestTarget, WriteOptions
from tarragon.localcluster.kinds.registry import KindRegistry
from tarragon.localcluster.registry.create import Creator
from tarragon.localcluster.registry.writes import WriteDecision, WriteTransaction, decode_stored
from tarragon.localcluster.storage.database import WriteFailedError

EVENT_TTL_SECONDS = 3600
"""How long an event is kept after its last write, as in a kube-apiserver."""

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_SERVER_OPTIONS = WriteOptions(field_manager="tarragon")
_REMOVAL_BATCH_SIZE = 1_000


class Maintenance:
    """Creates the bootstrap objects and does periodic maintenance."""

    def __init__(self, writes: WriteTransaction, creates: Creator, registry: KindRegistry) -> None:
        self._writes = writes
        self._store = writes.store
        self._creates = creates
        self._registry = registry

    async def create_bootstrap_objects(self) -> None:
        """Create the missing standard namespaces and priority classes. Raises ApiError if the disk is full."""
        namespaces = self._target("", "namespaces")
        priorities = self._target("scheduling.k8s.io", "priorityclasses")
        wanted: list[tuple[RequestTarget, str, Json]] = [(namespaces, name, {}) for name in _NAMESPACES]
        wanted += [(priorities, name, {"value": value}) for name, value in _PRIORITIES.items()]
        missing = [
            self._creates.create(target, {"metadata": {"name": name}, **content}, _SERVER_OPTIONS)
            for target, name, content in wanted
            if self._store.pending_state(target.served.full_name, ("", name)) is None
        ]
        await asyncio.gather(*missing)

    async def run_once(self) -> None:
        """Remove old events, compact the history to its window, and send bookmarks to the watches that request them."""
        try:
            await self._writes.run(self._expired_events, _SERVER_OPTIONS)
            await self._store.compact()
        except (ApiError, WriteFailedError):
            pass  # the disk is full: writers get the error, and the next pass tries again
        for shelf in self._store.watch_caches():
            shelf.send_bookmarks()

    def _expired_events(self) -> WriteDecision[None]:
        served = self._target("", "events").served
        horizon = self._writes.now().timestamp() - EVENT_TTL_SECONDS
        events = self._store.pending_states(served.full_name)
        expired = [event for event in events if event.written_at < horizon][:_REMOVAL_BATCH_SIZE]
        removals = [
            self._writes.removal(served, decode_stored(event, served), event, _SERVER_OPTIONS) for event in expired
        ]
        return WriteDecision(removals, None)

    def _target(self, group: str, plural: str) -> RequestTarget:
        served = self._registry.find(group, "v1", plural)
        assert served is not None  # noqa: S101 - it is built in
        return RequestTarget(served)
