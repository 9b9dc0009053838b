"""Handles Ctrl-C, SIGTERM and SIGHUP, so that a command can end in an orderly way."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SIGNAL_EXIT_BASE = 128
"""The exit code of a program that was ended by a signal is this plus the signal's number."""


class SignalHandler:
    """Futures for Ctrl-C and other signals: `terminated` has the number of SIGTERM or SIGHUP.

    The first Ctrl-C asks to stop, the second one forces it, the third one ends the wait for that. SIGTERM and SIGHUP
    (a shutdown, `kill`, a closed terminal) end the command only: the job continues, now or at the next start.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.first_interrupt: asyncio.Future[None] = loop.create_future()
        self.second_interrupt: asyncio.Future[None] = loop.create_future()
        self.third_interrupt: asyncio.Future[None] = loop.create_future()
        self.terminated: asyncio.Future[int] = loop.create_future()

    def on_interrupt(self) -> None:
        for pressed in (self.first_interrupt, self.second_interrupt, self.third_interrupt):
            if not pressed.done():
                pressed.set_result(None)
                return

    def on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            _redirect_lost_terminal()
        if not self.terminated.done():
            self.terminated.set_result(number)


@contextmanager
def handled_signals() -> Iterator[SignalHandler]:
    """Handles the signals while the context is open. Signals that are ignored (`nohup`) stay ignored."""
    loop = asyncio.get_running_loop()
    received = SignalHandler(loop)
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in numbers:
        if number == signal.SIGINT:
            loop.add_signal_handler(number, received.on_interrupt)
        else:
            loop.add_signal_handler(number, received.on_signal, number)
    try:
        yield received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def is_lost_terminal(error: BaseException | None) -> bool:
    """Whether the error comes from writing to a closed terminal. It may be raised before SIGHUP arrives."""
    return isinstance(error, OSError) and error.errno == errno.EIO


def _redirect_lost_terminal() -> None:
    """Redirects the standard streams of a closed terminal to /dev/null, so that writing to them is no error."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        with suppress(OSError):  # the stream is closed already
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                os.dup2(null, stream)
    os.close(null)
