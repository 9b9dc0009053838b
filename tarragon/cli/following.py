"""Following a job on the embedded cluster, which may die meanwhile: then it is started again, and that is said."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.follow.follower import Follower
from tarragon.cli.session import client
from tarragon.cli.settings import home
from tarragon.cluster.errors import Unauthorized, Unavailable
from tarragon.localcluster.daemon import ensure_running
from tarragon.localcluster.presence import read_server

BREATH = 0.2
"""Seconds between two attempts, so that a cluster that dies at every start does not keep us busy."""


async def follow(follower: Follower, clock: Clock, note: Callable[[str], None]) -> None:
    """Return when the job is over. Raises TarragonError when the cluster was ended on purpose, or does not start."""
    place = home()
    followed: int | None = None
    while True:
        server = await ensure_running(place, clock)
        if followed not in {None, server.pid}:
            note(f"The local cluster had ended unexpectedly; it was started again (process {server.pid}).")
        followed = server.pid
        try:
            async with client(place, server.url) as http:
                await follower.follow(http)
        except (Unavailable, Unauthorized) as error:
            if read_server(place) is None:
                # Whoever is killed leaves its card behind; whoever was asked to end takes it away.
                raise ended(follower) from error
            await clock.sleep(BREATH)
        else:
            return


def ended(follower: Follower) -> TarragonError:
    key = follower.job.key
    return TarragonError(
        f"the local cluster was ended while {follower.job.name} was followed",
        why="somebody called `tarragon down`, or ended `tarragon up`",
        remedy=f"`tarragon up` starts it again and the job goes on; then `tarragon logs --follow {key.name}`",
    )


class Interrupts:
    """Ctrl-C, counted: the first one asks, the second one forces. SIGTERM counts as one, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.first: asyncio.Future[None] = loop.create_future()
        self.second: asyncio.Future[None] = loop.create_future()

    def note(self) -> None:
        for wanted in (self.first, self.second):
            if not wanted.done():
                wanted.set_result(None)
                return


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """As long as this is open, signals do not end the process."""
    loop = asyncio.get_running_loop()
    counted = Interrupts(loop)
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, counted.note)
    try:
        yield counted
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
