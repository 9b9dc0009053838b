"""The event loop of `tarragon top`: reads keys and changes, and draws at most four frames a second."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tarragon.base.clock import Clock
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.style import painter
from tarragon.cli.output.terminal import size
from tarragon.cli.top.composing import Composer
from tarragon.cli.top.console import Console
from tarragon.cli.top.desk import Desk
from tarragon.cli.top.entries import Entry
from tarragon.cli.top.keys import Keys
from tarragon.cli.top.page import page
from tarragon.cli.top.state import Place, Wish, pressed, settled
from tarragon.cli.top.view import Frame, heights, shown_jobs
from tarragon.cli.top.voices import Voices
from tarragon.cli.top.watches import Scope, Watches

BETWEEN_PICTURES = 0.25
"""Minimum seconds between two frames; faster changes are drawn together."""
IDLE = 1.0
"""Seconds between two frames without changes, to update ages."""
DOUBT = 0.05
"""Seconds to wait for the rest of an escape sequence before Escape counts as a key."""
AT_A_TIME = 64
"""Changed jobs that are decoded before keys are handled again."""


class App:
    """The application on one terminal. `run` returns when the user quits."""

    def __init__(self, settings: Settings, where: Target, clock: Clock, scope: Scope) -> None:
        self._settings = settings
        self._where = where
        self._clock = clock
        self._initial_scope = scope
        self._console = Console(sys.stdin, sys.stdout)
        self._paint = painter(colors=settings.terminal().colors_out)
        self._keys = Keys()
        self._pressed: list[str] = []
        self._wake = asyncio.Event()
        self._has_changes = True
        self._has_quit = False
        self._cursor = Place()
        self._dialogs = Desk(settings, clock, self._on_change)
        self._drawn_at = clock.monotonic()
        self._set_scope(scope)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        with self._console:
            self._listen(loop)
            self._watching = asyncio.create_task(self._watches.run())
            try:
                while not self._has_quit:
                    await self._step()
            finally:
                self._console.ignore()
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
                await self._dialogs.close()
                await self._log_tails.stop()
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)

    def _set_scope(self, scope: Scope) -> None:
        self._current_scope = scope
        self._watches = Watches(self._where, self._clock, scope, self._on_change)
        self._log_tails = Voices(self._clock, self._on_change)
        self._composer = Composer(self._where, scope.namespace, self._log_tails, self._clock)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._console.listen(self._on_input)
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGINT: self._quit,
            signal.SIGTERM: self._quit,
            signal.SIGHUP: self._quit,
            signal.SIGWINCH: self._redraw,
            signal.SIGTSTP: self._stop,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)

    async def _step(self) -> None:
        """Draw one frame, wait for a key, a change or the idle timeout, and handle the keys."""
        if self._watching.done():
            self._watching.result()
        await self._decode_changes()
        self._draw()
        await self._wait()
        keys, self._pressed = self._pressed, []
        for key in keys:
            await self._press(key)

    async def _decode_changes(self) -> None:
        """Decode changed jobs for up to one frame interval, or until a key is pressed."""
        until = self._clock.monotonic() + BETWEEN_PICTURES
        scene = self._watches.scene
        while scene.unread and not self._pressed and self._clock.monotonic() < until:
            scene.read_some(AT_A_TIME)
            await self._clock.sleep(0)
        self._has_changes = bool(scene.unread)

    async def _wait(self) -> None:
        while not (self._pressed or self._has_quit or self._watches.scene.unread):
            due = self._drawn_at + (BETWEEN_PICTURES if self._has_changes else IDLE) - self._clock.monotonic()
            if due <= 0:
                return
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(due):
                    await self._wake.wait()

    def _draw(self) -> None:
        room = size(sys.stdout)
        frame = Frame(width=room.columns, height=room.lines, now=self._clock.now())
        self._drawn_at = self._clock.monotonic()
        if self._dialogs.sheet is not None:
            self._console.show(self._dialogs.sheet.drawn(frame, self._paint))
            return
        scene = self._watches.scene
        self._cursor = settled(self._cursor, self._composer.rows(scene, self._cursor, 1))
        view = self._composer.view(self._watches, self._cursor, self._dialogs.note)
        shown = shown_jobs(view, self._cursor, frame.height)
        view = replace(view, said=self._composer.said(scene, shown))
        self._console.show(page(view, self._cursor, frame, self._paint))
        self._update_log_tails(shown)

    def _update_log_tails(self, shown: Sequence[Entry]) -> None:
        cluster = self._watches.cluster
        if cluster is not None:
            self._log_tails.listen(cluster, self._composer.speakers(self._watches.scene, shown, self._cursor))

    async def _press(self, key: str) -> None:
        if await self._dialogs.press(key):
            return
        scene = self._watches.scene
        view = self._composer.view(self._watches, self._cursor, "")
        rows = self._composer.rows(scene, self._cursor, heights(view, size(sys.stdout).lines).jobs)
        result = pressed(self._cursor, key, rows)
        if isinstance(result, Place):
            self._cursor = settled(result, self._composer.rows(scene, result, 1))
        else:
            await self._perform(result)

    async def _perform(self, action: Wish) -> None:
        if action is Wish.QUIT:
            self._quit()
        elif action is Wish.REDRAW:
            self._console.forget()
        elif action is Wish.NAMESPACES:
            await self._toggle_namespaces()
        else:
            scene = self._watches.scene
            entry = self._composer.entry(scene, self._cursor)
            self._dialogs.open(action, self._watches, entry, self._cursor)

    async def _toggle_namespaces(self) -> None:
        everywhere = Scope("")
        named = self._initial_scope if self._initial_scope.namespace else Scope(self._where.namespace)
        await self._log_tails.stop()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self._set_scope(named if self._current_scope == everywhere else everywhere)
        self._watching = asyncio.create_task(self._watches.run())

    def _on_input(self, data: bytes) -> None:
        if not data:
            # The terminal was closed.
            self._quit()
        self._pressed += self._keys.feed(data)
        if self._keys.is_in_doubt:
            asyncio.get_running_loop().call_later(DOUBT, self._flush_keys)
        self._wake.set()

    def _flush_keys(self) -> None:
        self._pressed += self._keys.flush()
        self._wake.set()

    def _on_change(self) -> None:
        if not self._has_changes:
            self._has_changes = True
            self._wake.set()

    def _redraw(self) -> None:
        self._console.forget()
        self._drawn_at = -1.0
        self._wake.set()

    def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        self._console.stop()
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._redraw()

    def _quit(self) -> None:
        self._has_quit = True
        self._wake.set()


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP)
