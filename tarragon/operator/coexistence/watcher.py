"""Checks periodically whether another training operator is running on the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.port import Client
from tarragon.operator.coexistence.detection import ClusterState, detect_operators, operators_by_kind
from tarragon.operator.coexistence.listing import list_operators

CHECK_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""Seconds until a failed initial check is retried."""

log = structlog.get_logger(__name__)


class CoexistenceWatcher:
    """Call `first_check` before any decision, then `run`, which never returns."""

    def __init__(self, cluster: Client, clock: Clock, on_change: Callable[[Mapping[str, str]], None]) -> None:
        """`on_change` gets the detected operators by kind when they change, and initially if there are any."""
        self._cluster = cluster
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
            found = await list_operators(self._cluster)
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
