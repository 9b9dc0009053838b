"""Ctrl-C, counted, and being told to end, instead of an end in the middle of something."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SIGNALLED = 128
"""A shell reports a program that a signal ended as this plus the signal's number."""


class Interrupts:
    """Ctrl-C, counted: the first one asks, the second one forces.

    `told` is the number of SIGTERM or SIGHUP: a machine that shuts down, `kill`, a terminal that was closed. Nobody
    who sends one means the job, which may go on, or go on at the next start.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.first: asyncio.Future[None] = loop.create_future()
        self.second: asyncio.Future[None] = loop.create_future()
        self.told: asyncio.Future[int] = loop.create_future()

    def note(self) -> None:
        for wanted in (self.first, self.second):
            if not wanted.done():
                wanted.set_result(None)
                return

    def tell(self, number: int) -> None:
        if number == signal.SIGHUP:
            _let_go_of_a_lost_terminal()
        if not self.told.done():
            self.told.set_result(number)


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """As long as this is open, signals do not end the process. What is ignored (`nohup`) stays so."""
    loop = asyncio.get_running_loop()
    counted = Interrupts(loop)
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in numbers:
        if number == signal.SIGINT:
            loop.add_signal_handler(number, counted.note)
        else:
            loop.add_signal_handler(number, counted.tell, number)
    try:
        yield counted
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def is_lost_terminal(error: BaseException | None) -> bool:
    """What writing to one that was closed raises, which may come sooner than its SIGHUP."""
    return isinstance(error, OSError) and error.errno == errno.EIO


def _let_go_of_a_lost_terminal() -> None:
    """What is said to it from now on goes nowhere, and is no error. One that is still there is kept."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        with suppress(OSError):  # it was closed long ago
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                os.dup2(nowhere, stream)
    os.close(nowhere)
