"""Checks periodically whether another training operator is running on the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Forbidden
from tarragon.client.port import ALL_OBJECTS, Client, ObjectList, Selector
from tarragon.kube.meta import Resource
from tarragon.operator.coexistence.detection import ClusterState, detect_operators, operators_by_kind
from tarragon.operator.coexistence.listing import list_operators

CHECK_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""Seconds until a failed initial check is retried."""
REFUSED_SECONDS = 3600.0
"""Seconds until a list that was forbidden is tried again: an operator of some namespaces may never list these kinds."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class _RefusalMemory:
    """Lists objects, and answers for the API server for a while after it has forbidden to list a kind."""

    def __init__(self, cluster: Client, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._refusals: dict[str, tuple[float, Forbidden]] = {}
        """When each kind was refused, and the answer."""

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        when, refusal = self._refusals.get(resource.full_name, (0.0, None))
        if refusal is not None and self._clock.monotonic() - when < REFUSED_SECONDS:
            raise refusal.with_traceback(None)
        try:
            return await self._cluster.list(resource, selection)
        except Forbidden as error:
            self._refusals[resource.full_name] = self._clock.monotonic(), error
            raise


class CoexistenceWatcher:
    """Call `first_check` before any decision, then `run`, which never returns."""

    def __init__(self, cluster: Client, clock: Clock, on_change: Callable[[Mapping[str, str]], None]) -> None:
        """`on_change` gets the detected operators by kind when they change, and initially if there are any."""
        self._lister = _RefusalMemory(cluster, clock)
        self._clock = clock
        self._on_change = on_change
        self._previous = ClusterState()
        self._reported: Mapping[str, str] = {}
        self._unreadable: set[str] = set()

    async def first_check(self) -> None:
        """Wait for a first successful check: without it, Tarragon might create another operator's pods twice."""
        while not await self._check():
            await self._clock.sleep(RETRY_SECONDS)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            await self._check()

    async def _check(self) -> bool:
        """Check once. Returns False, and changes nothing, if a request failed."""
        try:
            found = await list_operators(self._lister)
        except ApiError as error:
            log.warning("cannot check for other operators", error=str(error))
            return False
        self._report_unreadable(found)
        seen = detect_operators(found, self._previous, self._clock.now())
        self._previous = found
        operators = operators_by_kind(seen)
        if operators != self._reported:
            self._reported = operators
            self._on_change(operators)
        return True

    def _report_unreadable(self, found: ClusterState) -> None:
        for kind, error in found.unreadable.items():
            if kind not in self._unreadable:
                self._unreadable.add(kind)
                log.warning("cannot detect other operators by this kind", kind=kind, error=error)
