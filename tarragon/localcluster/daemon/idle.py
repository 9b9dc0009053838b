"""The idle timeout of a background cluster."""

from __future__ import annotations

from typing import Protocol

from tarragon.base.clock import Clock

_CHECKS = 10
"""How often activity is checked during the timeout."""


class Activity(Protocol):
    """The activity of a cluster, which is polled."""

    def is_busy(self) -> bool:
        """Whether a pod runs, a client reads a stream, or a cron job is scheduled at this moment."""
        ...

    def last_request(self) -> float:
        """The monotonic time of the last request of a client."""
        ...


async def until_idle(activity: Activity, clock: Clock, seconds: float) -> None:
    """Return when the cluster has been idle for the given time."""
    idle_since = clock.monotonic()
    while clock.monotonic() - idle_since < seconds:
        await clock.sleep(seconds / _CHECKS)
        idle_since = max(idle_since, activity.last_request())
        if activity.is_busy():
            idle_since = clock.monotonic()
