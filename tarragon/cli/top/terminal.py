"""Takes over a terminal: alternate screen, raw keys, and restoring the previous mode."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from tarragon.base.escaping import STYLE_ESCAPE

_ENTER = f"{STYLE_ESCAPE}[?1049h{STYLE_ESCAPE}[?25l{STYLE_ESCAPE}[?7l{STYLE_ESCAPE}[2J"
_LEAVE = f"{STYLE_ESCAPE}[0m{STYLE_ESCAPE}[?7h{STYLE_ESCAPE}[?25h{STYLE_ESCAPE}[?1049l"

Attributes = list[Any]  # type: ignore[explicit-any] # as termios has it: numbers, and a list of characters


def _suspend() -> None:
    """Stop this process as Ctrl-Z does by default, and return when it is continued."""
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)


class TerminalScreen:
    """Draws rows on the alternate screen, and only those that have changed. Leaving restores the previous contents."""

    def __init__(self, keyboard: TextIO, screen: TextIO, suspend: Callable[[], None] = _suspend) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._suspend = suspend
        self._shown: list[str] = []
        self._before: Attributes | None = None
        self._pressed: Callable[[bytes], None] = lambda _: None

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def enter(self) -> None:
        """Switch to the alternate screen and read keys unbuffered, without echo. Ctrl-C and Ctrl-Z remain signals."""
        if self._before is None:
            self._before = termios.tcgetattr(self._keyboard.fileno())
        inputs, outputs, control, local, *speeds, characters = self._before
        inputs &= ~(termios.IXON | termios.ICRNL)
        local &= ~(termios.ICANON | termios.ECHO)
        characters = [*characters]
        characters[termios.VMIN], characters[termios.VTIME] = 1, 0
        mode = [inputs, outputs, control, local, *speeds, characters]
        termios.tcsetattr(self._keyboard.fileno(), termios.TCSADRAIN, mode)
        self._write(_ENTER)
        self.invalidate()

    def leave(self) -> None:
        """Restore the terminal. May be called twice."""
        if self._before is not None:
            self._write(_LEAVE)
            termios.tcsetattr(self._keyboard.fileno(), termios.TCSADRAIN, self._before)
            self._before = None

    def start_reading(self, pressed: Callable[[bytes], None]) -> None:
        """Call `pressed` in the running event loop with input as it arrives; with no bytes when the terminal closes."""
        fd = self._keyboard.fileno()
        self._pressed = pressed
        asyncio.get_running_loop().add_reader(fd, lambda: pressed(os.read(fd, 1024)))

    def stop_reading(self) -> None:
        """Stop reading keys, including those that the event loop has noticed but not read yet."""
        asyncio.get_running_loop().remove_reader(self._keyboard.fileno())

    def suspend(self) -> None:
        """Handle Ctrl-Z: restore the terminal, stop the process, and take the terminal over again after `fg`."""
        # The shell reads the keys meanwhile: a read that is already scheduled would block.
        self.stop_reading()
        self.leave()
        self._suspend()
        self.enter()
        self.start_reading(self._pressed)

    def invalidate(self) -> None:
        """Draw all rows the next time, because the contents of the screen are unknown."""
        self._shown = []

    def draw(self, rows: Sequence[str]) -> None:
        """Draw rows that are already cut to the width of the terminal."""
        if not self._shown:
            self._write(f"{STYLE_ESCAPE}[2J")
        before = [*self._shown, *[""] * (len(rows) - len(self._shown))]
        changed = [
            # Erase first: after a full row the cursor is on its last character, which would be erased, too.
            f"{STYLE_ESCAPE}[{place};1H{STYLE_ESCAPE}[2K{row}{STYLE_ESCAPE}[0m"
            for place, (row, old) in enumerate(zip(rows, before, strict=False), start=1)
            if row != old
        ]
        self._shown = list(rows)
        if changed:
            self._write("".join(changed))

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()
