"""When a background cluster has nothing left to do."""

from __future__ import annotations

from typing import Protocol

from tarragon.base.clock import Clock

_LOOKS = 10
"""How often to look within the time that has to be quiet."""


class Activity(Protocol):
    """What is asked again and again."""

    def is_busy(self) -> bool:
        """Something runs, or somebody is being told something, at this moment."""
        ...

    def last_request(self) -> float:
        """The monotonic time at which a client last asked for anything."""
        ...


async def until_idle(activity: Activity, clock: Clock, seconds: float) -> None:
    """Return when it has been quiet for so long."""
    quiet_since = clock.monotonic()
    while clock.monotonic() - quiet_since < seconds:
        await clock.sleep(seconds / _LOOKS)
        quiet_since = max(quiet_since, activity.last_request())
        if activity.is_busy():
            quiet_since = clock.monotonic()
