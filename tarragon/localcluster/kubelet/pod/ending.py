"""Ends the containers of one pod: the preStop hook, SIGTERM, and what follows when a shim does not listen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.localcluster.kubelet.base.spec import Handler
from tarragon.localcluster.kubelet.network.address_translation import Place
from tarragon.localcluster.kubelet.probes.handlers import Handlers, HookFailed, Tell
from tarragon.localcluster.kubelet.shim.shim_client import Shims

OVERTIME_SECONDS = 20.0
"""Beyond its grace: a shim that has not ended its container by then is killed itself."""
FAILED = "FailedPreStopHook"
LEAST_SECONDS = 2.0
"""What is left for SIGTERM, however long a hook or the wait for others has taken."""


@dataclass(slots=True, kw_only=True)
class _End:
    """`due` is when the shim should be through (monotonic), None before SIGTERM."""

    place: Place
    grace: float
    begun: float
    hook: asyncio.Task[None] | None = None
    due: float | None = None


class Ending:
    """Ask again and again: each call does what is due. `wake` is called when another may do more."""

    def __init__(self, shims: Shims, handlers: Handlers, clock: Clock, tell: Tell, wake: Callable[[], None]) -> None:
        self._shims = shims
        self._handlers = handlers
        self._clock = clock
        self._tell = tell
        self._wake = wake
        self._ends: dict[str, _End] = {}

    def prepare(self, place: Place, grace: float, words: str) -> None:
        """Its hook now; SIGTERM when it is stopped."""
        end = self._ends.get(place.container.name)
        if end is None:
            self._tell("Normal", "Killing", words)
            end = _End(place=place, grace=grace, begun=self._clock.monotonic())
            end.hook = self._hooked(end)
            self._ends[place.container.name] = end
        elif grace < end.grace:
            self._hurry(end, grace)

    def stop(self, place: Place, grace: float, words: str) -> None:
        self.prepare(place, grace, words)
        end = self._ends[place.container.name]
        now = self._clock.monotonic()
        if end.due is not None:
            if now > end.due + OVERTIME_SECONDS:
                end.due = now
                self._shims.abandon(place.folder)
        elif end.hook is None or end.hook.done():
            self._send(end)
        elif now >= end.begun + end.grace:
            self._tell("Warning", FAILED, "PreStopHook not completed in grace period")
            end.hook.cancel()
            self._send(end)

    def ended(self, name: str) -> None:
        end = self._ends.pop(name, None)
        if end is not None and end.hook is not None:
            end.hook.cancel()

    def dues(self, names: Collection[str]) -> list[float]:
        """Seconds until something is to be done about these even if nothing happens."""
        moments = [
            end.begun + end.grace if end.due is None else end.due + OVERTIME_SECONDS
            for name, end in self._ends.items()
            if name in names and not (end.due is None and end.hook is None)
        ]
        return [moment - self._clock.monotonic() for moment in moments]

    def close(self) -> None:
        for name in list(self._ends):
            self.ended(name)

    def _send(self, end: _End) -> None:
        gone = self._clock.monotonic() - end.begun
        has_waited = end.hook is not None or gone >= 1.0
        grace = max(LEAST_SECONDS, end.grace - gone) if has_waited and end.grace else end.grace
        end.due = self._clock.monotonic() + grace
        self._shims.stop(end.place.folder, grace)

    def _hurry(self, end: _End, grace: float) -> None:
        """A second delete with less grace."""
        end.grace, end.begun = grace, self._clock.monotonic()
        if end.due is not None:
            self._send(end)

    def _hooked(self, end: _End) -> asyncio.Task[None] | None:
        """Where there was SIGTERM already, under an earlier kubelet, the hook was before."""
        hook = end.place.container.pre_stop
        if hook is None or end.grace <= 0 or (end.place.folder / "stop.json").exists():
            return None
        task = asyncio.create_task(self._carry_out(end, hook))
        task.add_done_callback(lambda _: self._wake())
        return task

    async def _carry_out(self, end: _End, hook: Handler) -> None:
        try:
            await self._handlers.carry_out(end.place, hook)
        except HookFailed:
            # As with a kubelet: what a hook says may be secret.
            self._tell("Warning", FAILED, "PreStopHook failed")
