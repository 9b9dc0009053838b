"""The event loop of `tarragon top`: reads keys and changes, and draws at most four frames a second."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tarragon.base.clock import Clock
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.style import painter
from tarragon.cli.output.terminal import size
from tarragon.cli.top.dialogs import Dialogs
from tarragon.cli.top.job_rows import JobRow
from tarragon.cli.top.keys import KeyDecoder
from tarragon.cli.top.log_tails import LogTails
from tarragon.cli.top.page import render_page
from tarragon.cli.top.page_state import Action, PageState, clamp, press
from tarragon.cli.top.terminal import TerminalScreen
from tarragon.cli.top.view import Frame, panel_heights, visible_jobs
from tarragon.cli.top.view_builder import ViewBuilder
from tarragon.cli.top.watches import ClusterWatch, WatchedNamespace

FRAME_SECONDS = 0.25
"""Minimum seconds between two frames; faster changes are drawn together."""
IDLE_FRAME_SECONDS = 1.0
"""Seconds between two frames without changes, to update ages."""
ESCAPE_TIMEOUT = 0.05
"""Seconds to wait for the rest of an escape sequence before Escape counts as a key."""
DECODE_BATCH = 64
"""Changed jobs that are decoded before keys are handled again."""


class App:
    """The application on one terminal. `run` returns when the user quits."""

    def __init__(self, settings: GlobalOptions, target: ClusterTarget, clock: Clock, scope: WatchedNamespace) -> None:
        self._settings = settings
        self._where = target
        self._clock = clock
        self._initial_scope = scope
        self._console = TerminalScreen(sys.stdin, sys.stdout)
        self._paint = painter(colors=settings.terminal().colors_out)
        self._keys = KeyDecoder()
        self._pressed: list[str] = []
        self._wake = asyncio.Event()
        self._has_changes = True
        self._has_quit = False
        self._cursor = PageState()
        self._dialogs = Dialogs(settings, clock, self._on_change)
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
                self._console.stop_reading()
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
                await self._dialogs.close()
                await self._log_tails.stop()
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)

    def _set_scope(self, scope: WatchedNamespace) -> None:
        self._current_scope = scope
        self._watches = ClusterWatch(self._where, self._clock, scope, self._on_change)
        self._log_tails = LogTails(self._clock, self._on_change)
        self._composer = ViewBuilder(self._where, scope.namespace, self._log_tails, self._clock)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._console.start_reading(self._on_input)
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
        until = self._clock.monotonic() + FRAME_SECONDS
        scene = self._watches.state
        while scene.undecoded and not self._pressed and self._clock.monotonic() < until:
            scene.decode(DECODE_BATCH)
            await self._clock.sleep(0)
        self._has_changes = bool(scene.undecoded)

    async def _wait(self) -> None:
        while not (self._pressed or self._has_quit or self._watches.state.undecoded):
            due = (
                self._drawn_at + (FRAME_SECONDS if self._has_changes else IDLE_FRAME_SECONDS) - self._clock.monotonic()
            )
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
        if self._dialogs.pager is not None:
            self._console.draw(self._dialogs.pager.render(frame, self._paint))
            return
        scene = self._watches.state
        self._cursor = clamp(self._cursor, self._composer.rows(scene, self._cursor, 1))
        view = self._composer.view(self._watches, self._cursor, self._dialogs.note)
        shown = visible_jobs(view, self._cursor, frame.height)
        view = replace(view, progress=self._composer.training_progress(scene, shown))
        self._console.draw(render_page(view, self._cursor, frame, self._paint))
        self._update_log_tails(shown)

    def _update_log_tails(self, shown: Sequence[JobRow]) -> None:
        cluster = self._watches.cluster
        if cluster is not None:
            self._log_tails.follow(cluster, self._composer.log_sources(self._watches.state, shown, self._cursor))

    async def _press(self, key: str) -> None:
        if await self._dialogs.press(key):
            return
        scene = self._watches.state
        view = self._composer.view(self._watches, self._cursor, "")
        rows = self._composer.rows(scene, self._cursor, panel_heights(view, size(sys.stdout).lines).jobs)
        result = press(self._cursor, key, rows)
        if isinstance(result, PageState):
            self._cursor = clamp(result, self._composer.rows(scene, result, 1))
        else:
            await self._perform(result)

    async def _perform(self, action: Action) -> None:
        if action is Action.QUIT:
            self._quit()
        elif action is Action.REDRAW:
            self._console.invalidate()
        elif action is Action.NAMESPACES:
            await self._toggle_namespaces()
        else:
            scene = self._watches.state
            entry = self._composer.entry(scene, self._cursor)
            self._dialogs.open(action, self._watches, entry, self._cursor)

    async def _toggle_namespaces(self) -> None:
        everywhere = WatchedNamespace("")
        named = self._initial_scope if self._initial_scope.namespace else WatchedNamespace(self._where.namespace)
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
        if self._keys.is_incomplete:
            asyncio.get_running_loop().call_later(ESCAPE_TIMEOUT, self._flush_keys)
        self._wake.set()

    def _flush_keys(self) -> None:
        self._pressed += self._keys.flush()
        self._wake.set()

    def _on_change(self) -> None:
        if not self._has_changes:
            self._has_changes = True
            self._wake.set()

    def _redraw(self) -> None:
        self._console.invalidate()
        self._drawn_at = -1.0
        self._wake.set()

    def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        self._console.suspend()
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._redraw()

    def _quit(self) -> None:
        self._has_quit = True
        self._wake.set()


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP)
