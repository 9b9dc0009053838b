"""A whole terminal for a while: its other page, its keys one by one, and everything as it was before in the end."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from tarragon.base.escaping import ESC

_ENTER = f"{ESC}[?1049h{ESC}[?25l{ESC}[?7l{ESC}[2J"
_LEAVE = f"{ESC}[0m{ESC}[?7h{ESC}[?25h{ESC}[?1049l"

Attributes = list[Any]  # type: ignore[explicit-any] # as termios has it: numbers, and a list of characters


def _suspend() -> None:
    """Stop this process as Ctrl-Z does by default, and return when it is continued."""
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)


class Console:
    """Draws rows, and only those that have changed. The other page has no history: what was there comes back."""

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
        """Keys come at once and are not shown. Ctrl-C and Ctrl-Z stay signals."""
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
        self.forget()

    def leave(self) -> None:
        """Harmless when it is done twice."""
        if self._before is not None:
            self._write(_LEAVE)
            termios.tcsetattr(self._keyboard.fileno(), termios.TCSADRAIN, self._before)
            self._before = None

    def listen(self, pressed: Callable[[bytes], None]) -> None:
        """Call `pressed` in the running event loop with all keys as they come; with none when the terminal has gone."""
        fd = self._keyboard.fileno()
        self._pressed = pressed
        asyncio.get_running_loop().add_reader(fd, lambda: pressed(os.read(fd, 1024)))

    def ignore(self) -> None:
        """Leave all keys to others, those too that the event loop has seen and not read yet."""
        asyncio.get_running_loop().remove_reader(self._keyboard.fileno())

    def stop(self) -> None:
        """Ctrl-Z: give the terminal back, stop, and take it again when somebody says `fg`."""
        # The shell reads what is typed meanwhile. A read that is already due would wait for keys that have gone.
        self.ignore()
        self.leave()
        self._suspend()
        self.enter()
        self.listen(self._pressed)

    def forget(self) -> None:
        """What is on the screen is not known any more: the next rows are all drawn."""
        self._shown = []

    def show(self, rows: Sequence[str]) -> None:
        """Each row is cut to the width already."""
        if not self._shown:
            self._write(f"{ESC}[2J")
        before = [*self._shown, *[""] * (len(rows) - len(self._shown))]
        changed = [
            # Erased first: behind a full row the cursor stands on its last character, which would go, too.
            f"{ESC}[{place};1H{ESC}[2K{row}{ESC}[0m"
            for place, (row, old) in enumerate(zip(rows, before, strict=False), start=1)
            if row != old
        ]
        self._shown = list(rows)
        if changed:
            self._write("".join(changed))

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()
