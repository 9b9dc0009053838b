"""`tarragon top` at work: keys and news come in, at most four pictures a second go out."""

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
"""Seconds: changes that come faster share one."""
IDLE = 1.0
"""Seconds after which ages have changed."""
DOUBT = 0.05
"""Seconds in which the rest of a key's sequence comes, if it was one."""
AT_A_TIME = 64
"""Jobs that are read before keys are looked at again."""


class App:
    """Of one terminal. `run` returns when the user has had enough."""

    def __init__(self, settings: Settings, where: Target, clock: Clock, scope: Scope) -> None:
        self._settings = settings
        self._where = where
        self._clock = clock
        self._home = scope
        self._console = Console(sys.stdin, sys.stdout)
        self._paint = painter(colors=settings.terminal().colors_out)
        self._keys = Keys()
        self._pressed: list[str] = []
        self._wake = asyncio.Event()
        self._has_news = True
        self._is_over = False
        self._place = Place()
        self._desk = Desk(settings, clock, self._changed)
        self._drawn_at = clock.monotonic()
        self._scope(scope)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        with self._console:
            self._listen(loop)
            self._watching = asyncio.create_task(self._watches.run())
            try:
                while not self._is_over:
                    await self._turn()
            finally:
                self._console.ignore()
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
                await self._desk.close()
                await self._voices.stop()
                self._watching.cancel()
                await asyncio.gather(self._watching, return_exceptions=True)

    def _scope(self, scope: Scope) -> None:
        self._here = scope
        self._watches = Watches(self._where, self._clock, scope, self._changed)
        self._voices = Voices(self._clock, self._changed)
        self._composer = Composer(self._where, scope.namespace, self._voices, self._clock)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._console.listen(self._read)
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGINT: self._end,
            signal.SIGTERM: self._end,
            signal.SIGHUP: self._end,
            signal.SIGWINCH: self._redraw,
            signal.SIGTSTP: self._stop,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)

    async def _turn(self) -> None:
        """One picture, then whatever comes next: a key at once, news when they may be drawn, a second without any."""
        if self._watching.done():
            self._watching.result()
        await self._take_in()
        self._draw()
        await self._rest()
        keys, self._pressed = self._pressed, []
        for key in keys:
            await self._press(key)

    async def _take_in(self) -> None:
        """Of many changed jobs as many as can be read without letting the user wait."""
        until = self._clock.monotonic() + BETWEEN_PICTURES
        scene = self._watches.scene
        while scene.unread and not self._pressed and self._clock.monotonic() < until:
            scene.read_some(AT_A_TIME)
            await self._clock.sleep(0)
        self._has_news = bool(scene.unread)

    async def _rest(self) -> None:
        while not (self._pressed or self._is_over or self._watches.scene.unread):
            due = self._drawn_at + (BETWEEN_PICTURES if self._has_news else IDLE) - self._clock.monotonic()
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
        if self._desk.sheet is not None:
            self._console.show(self._desk.sheet.drawn(frame, self._paint))
            return
        scene = self._watches.scene
        self._place = settled(self._place, self._composer.rows(scene, self._place, 1))
        view = self._composer.view(self._watches, self._place, self._desk.note)
        shown = shown_jobs(view, self._place, frame.height)
        view = replace(view, said=self._composer.said(scene, shown))
        self._console.show(page(view, self._place, frame, self._paint))
        self._hear(shown)

    def _hear(self, shown: Sequence[Entry]) -> None:
        cluster = self._watches.cluster
        if cluster is not None:
            self._voices.listen(cluster, self._composer.speakers(self._watches.scene, shown, self._place))

    async def _press(self, key: str) -> None:
        if await self._desk.press(key):
            return
        scene = self._watches.scene
        view = self._composer.view(self._watches, self._place, "")
        rows = self._composer.rows(scene, self._place, heights(view, size(sys.stdout).lines).jobs)
        result = pressed(self._place, key, rows)
        if isinstance(result, Place):
            self._place = settled(result, self._composer.rows(scene, result, 1))
        else:
            await self._grant(result)

    async def _grant(self, wish: Wish) -> None:
        if wish is Wish.QUIT:
            self._end()
        elif wish is Wish.REDRAW:
            self._console.forget()
        elif wish is Wish.NAMESPACES:
            await self._other_namespaces()
        else:
            scene = self._watches.scene
            each = self._composer.entry(scene, self._place)
            self._desk.open(wish, self._watches, each, self._place)

    async def _other_namespaces(self) -> None:
        everywhere = Scope("")
        named = self._home if self._home.namespace else Scope(self._where.namespace)
        await self._voices.stop()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self._scope(named if self._here == everywhere else everywhere)
        self._watching = asyncio.create_task(self._watches.run())

    def _read(self, data: bytes) -> None:
        if not data:
            # The terminal has gone.
            self._end()
        self._pressed += self._keys.feed(data)
        if self._keys.is_in_doubt:
            asyncio.get_running_loop().call_later(DOUBT, self._give_up_doubt)
        self._wake.set()

    def _give_up_doubt(self) -> None:
        self._pressed += self._keys.flush()
        self._wake.set()

    def _changed(self) -> None:
        if not self._has_news:
            self._has_news = True
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

    def _end(self) -> None:
        self._is_over = True
        self._wake.set()


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP)
