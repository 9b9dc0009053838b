"""The terminal of `top`, which a shell has for a while."""

from __future__ import annotations

import asyncio
import os
import pty
import select
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from typing import TextIO

import pytest

from tarragon.cli.top.terminal import TerminalScreen


@dataclass
class Terminal:
    user: FileIO
    keyboard: TextIO
    screen: TextIO


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    user, side = pty.openpty()
    # A read that finds nothing is an error here, where on a terminal of its own it would wait for ever.
    os.set_blocking(side, False)
    with (
        os.fdopen(user, "wb", buffering=0) as keys,
        os.fdopen(side) as keyboard,
        os.fdopen(os.dup(side), "w") as screen,
    ):
        yield Terminal(keys, keyboard, screen)


async def test_keys_that_a_shell_reads_while_top_is_stopped_are_not_read_again(terminal: Terminal) -> None:
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    taken: list[bytes] = []

    def shell() -> None:
        taken.append(os.read(terminal.keyboard.fileno(), 1024))
        loop.call_soon(terminal.user.write, b"q")

    pressed: asyncio.Queue[bytes] = asyncio.Queue()
    console = TerminalScreen(terminal.keyboard, terminal.screen, suspend=shell)
    with console:
        console.start_reading(pressed.put_nowait)
        # The event loop sees Ctrl-Z and the next keys together: the read is due already when the process stops.
        loop.call_soon(console.suspend)
        terminal.user.write(b"fg\r")
        select.select([terminal.keyboard], [], [])
        assert await pressed.get() == b"q"
        console.stop_reading()

    assert (taken, errors) == ([b"fg\r"], [])
