"""Ctrl-C, counted, instead of an end in the middle of something."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


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
