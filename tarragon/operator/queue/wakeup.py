"""A bell that is rung when there is something to do."""

from __future__ import annotations

import asyncio

from tarragon.base.clock import Clock


class Bell:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rings = asyncio.Event()
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Nothing more is to begin."""
        return self._has_ended

    def ring(self) -> None:
        """It is heard until it is silenced."""
        self._rings.set()

    def ring_for_ever(self) -> None:
        self._has_ended = True
        self._rings.set()

    def silence(self) -> None:
        if not self._has_ended:
            self._rings.clear()

    async def heard(self, seconds: float | None) -> None:
        """Return when it rings, or that many of the clock's seconds have gone."""
        if self._rings.is_set():
            return
        waits: list[asyncio.Task[bool] | asyncio.Task[None]] = [asyncio.create_task(self._rings.wait())]
        if seconds is not None:
            waits.append(asyncio.create_task(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
