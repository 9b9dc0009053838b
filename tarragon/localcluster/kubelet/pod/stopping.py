"""Stops the containers of one pod: the preStop hook, SIGTERM, and SIGKILL for a shim that does not react."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.localcluster.kubelet.base.spec import Handler
from tarragon.localcluster.kubelet.network.container_ports import RunContext
from tarragon.localcluster.kubelet.probes.handlers import ActionRunner, HookFailed, RecordEvent
from tarragon.localcluster.kubelet.shim.shim_client import ShimClient

SHIM_KILL_SECONDS = 20.0
"""A shim that has not ended its container this long after the grace period is killed itself."""
FAILED_PRE_STOP_HOOK = "FailedPreStopHook"
MIN_GRACE_SECONDS = 2.0
"""The least grace period after SIGTERM, however long the preStop hook or the wait for other containers took."""


@dataclass(slots=True, kw_only=True)
class _End:
    """The state of a container's stop. `due` is when the grace period after SIGTERM ends (monotonic), None before."""

    place: RunContext
    grace: float
    begun: float
    hook: asyncio.Task[None] | None = None
    due: float | None = None


class ContainerStopper:
    """Stops containers step by step: each call does what is due; `wake` is called when a further call is needed."""

    def __init__(
        self,
        shims: ShimClient,
        handlers: ActionRunner,
        clock: Clock,
        record_event: RecordEvent,
        wake: Callable[[], None],
    ) -> None:
        self._shims = shims
        self._handlers = handlers
        self._clock = clock
        self._record_event = record_event
        self._wake = wake
        self._ends: dict[str, _End] = {}

    def prepare(self, place: RunContext, grace: float, words: str) -> None:
        """Run the preStop hook now; SIGTERM follows with `stop`."""
        end = self._ends.get(place.container.name)
        if end is None:
            self._record_event("Normal", "Killing", words)
            end = _End(place=place, grace=grace, begun=self._clock.monotonic())
            end.hook = self._start_hook(end)
            self._ends[place.container.name] = end
        elif grace < end.grace:
            self._shorten(end, grace)

    def stop(self, place: RunContext, grace: float, words: str) -> None:
        self.prepare(place, grace, words)
        end = self._ends[place.container.name]
        now = self._clock.monotonic()
        if end.due is not None:
            if now > end.due + SHIM_KILL_SECONDS:
                end.due = now
                self._shims.kill_shim(place.folder)
        elif end.hook is None or end.hook.done():
            self._terminate(end)
        elif now >= end.begun + end.grace:
            self._record_event("Warning", FAILED_PRE_STOP_HOOK, "PreStopHook not completed in grace period")
            end.hook.cancel()
            self._terminate(end)

    def forget(self, name: str) -> None:
        end = self._ends.pop(name, None)
        if end is not None and end.hook is not None:
            end.hook.cancel()

    def seconds_until_due(self, names: Collection[str]) -> list[float]:
        """Seconds until each of these containers needs another call, even if nothing happens."""
        moments = [
            end.begun + end.grace if end.due is None else end.due + SHIM_KILL_SECONDS
            for name, end in self._ends.items()
            if name in names and not (end.due is None and end.hook is None)
        ]
        return [moment - self._clock.monotonic() for moment in moments]

    def close(self) -> None:
        for name in list(self._ends):
            self.forget(name)

    def _terminate(self, end: _End) -> None:
        elapsed = self._clock.monotonic() - end.begun
        has_waited = end.hook is not None or elapsed >= 1.0
        grace = max(MIN_GRACE_SECONDS, end.grace - elapsed) if has_waited and end.grace else end.grace
        end.due = self._clock.monotonic() + grace
        self._shims.stop(end.place.folder, grace)

    def _shorten(self, end: _End, grace: float) -> None:
        """Apply the shorter grace period of a second delete."""
        end.grace, end.begun = grace, self._clock.monotonic()
        if end.due is not None:
            self._terminate(end)

    def _start_hook(self, end: _End) -> asyncio.Task[None] | None:
        """Start the preStop hook, unless there is none, no grace, or an earlier kubelet already sent SIGTERM."""
        hook = end.place.container.pre_stop
        if hook is None or end.grace <= 0 or (end.place.folder / "stop.json").exists():
            return None
        task = asyncio.create_task(self._run_hook(end, hook))
        task.add_done_callback(lambda _: self._wake())
        return task

    async def _run_hook(self, end: _End, hook: Handler) -> None:
        try:
            await self._handlers.run_hook(end.place, hook)
        except HookFailed:
            # As in Kubernetes, the hook's output is left out: it may contain secrets.
            self._record_event("Warning", FAILED_PRE_STOP_HOOK, "PreStopHook failed")
