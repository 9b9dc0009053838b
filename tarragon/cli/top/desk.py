"""The dialogs of `top`: a text view in place of the page, or a question that needs an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.log_lines import shown
from tarragon.cli.top.commands import heard, words
from tarragon.cli.top.entries import Entry
from tarragon.cli.top.help import TEXT
from tarragon.cli.top.news import events
from tarragon.cli.top.sheet import Sheet
from tarragon.cli.top.state import Panel, Place, Wish
from tarragon.cli.top.watches import Watches
from tarragon.client.errors import ApiError
from tarragon.job.phase import Phase

TAIL = "500"
"""The number of lines of each replica at the start of a log view."""


Add = Callable[[Sequence[str]], None]
Source = Callable[[Add], Awaitable[None]]
"""Passes lines to its argument as they arrive, and returns after the last."""


@dataclass(frozen=True, slots=True)
class Question:
    """A confirmation: `y` runs the command `line`, any other key cancels."""

    text: str
    line: Sequence[str]


class Desk:
    """Shows one dialog at a time. `note` replaces the key help in the last row until the next key."""

    def __init__(self, settings: Settings, clock: Clock, changed: Callable[[], None]) -> None:
        self.sheet: Sheet | None = None
        self._note = ""
        self._question: Question | None = None
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self._colors = settings.terminal().colors_out
        self._reading: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    @property
    def note(self) -> str:
        return self._question.text if self._question is not None else self._note

    async def press(self, key: str) -> bool:
        """Handle a key; False if no dialog is open and the page should handle it."""
        if self.sheet is not None:
            if not self.sheet.press(key):
                await self._close_sheet()
            return True
        self._note = ""
        if self._question is None:
            return False
        question, self._question = self._question, None
        if key in {"y", "Y"}:
            self._run(question)
        else:
            self._note = "Canceled."
        return True

    def open(self, wish: Wish, watches: Watches, each: Entry | None, place: Place) -> None:
        """Open the text view or the question for an action."""
        if wish is Wish.HELP:
            self._show(Sheet("tarragon top: keys", begins_at_end=False, colors=self._colors), self._help)
        elif each is None:
            self._note = "No job selected."
        elif wish is Wish.DELETE:
            text = f"Delete {each.job.name} in namespace {each.namespace} and its pods? y/n"
            self._question = Question(text, words(self._settings, "delete", each))
        elif wish is Wish.SUSPEND:
            verb = "resume" if each.state == Phase.SUSPENDED.value else "suspend"
            text = f"{verb.capitalize()} {each.job.name} in namespace {each.namespace}? y/n"
            self._question = Question(text, words(self._settings, verb, each))
        elif wish is Wish.EVENTS:
            title = f"Events of {each.job.name} in namespace {each.namespace}"
            self._show(Sheet(title, begins_at_end=True, colors=self._colors), self._events(watches, each))
        else:
            self._command(wish, watches, each, place)

    async def close(self) -> None:
        await self._close_sheet()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _command(self, wish: Wish, watches: Watches, each: Entry, place: Place) -> None:
        options: list[str] = []
        if wish is Wish.LOGS:
            options = ["--follow", "--tail", TAIL]
            members = watches.scene.progress(each).members
            if place.panel is Panel.REPLICAS and place.replica < len(members):
                options += ["--replica", members[place.replica].name]
        line = words(self._settings, wish.value, each, *options)
        sheet = Sheet(f"tarragon {' '.join(line)}", begins_at_end=wish is Wish.LOGS, colors=self._colors)
        self._show(sheet, self._command_output(line))

    def _show(self, sheet: Sheet, source: Source) -> None:
        async def fill() -> None:
            def add(lines: Sequence[str]) -> None:
                sheet.add(lines)
                self._changed()

            await source(add)
            sheet.is_over = True
            self._changed()

        self.sheet = sheet
        self._reading = asyncio.create_task(fill())

    def _command_output(self, line: Sequence[str]) -> Source:
        async def source(add: Add) -> None:
            await heard(self._settings, line, add)

        return source

    def _events(self, watches: Watches, each: Entry) -> Source:
        async def source(add: Add) -> None:
            if watches.cluster is None:
                add([watches.trouble or "The cluster does not answer."])
                return
            try:
                pods = watches.scene.controlled_in(each.job.key.namespace)
                add(await events(watches.cluster, each.job, pods, self._clock.now()))
            except ApiError as error:
                add([f"Can't read events: {error.what}"])

        return source

    async def _help(self, add: Add) -> None:
        add(TEXT)

    def _run(self, question: Question) -> None:
        async def do() -> None:
            output: list[str] = []
            await heard(self._settings, question.line, output.extend)
            texts = [shown(line, colors=False).strip() for line in output]
            self._note = next((text for text in reversed(texts) if text), "Done.")
            self._changed()

        self._note = f"tarragon {' '.join(question.line)} …"
        task = asyncio.create_task(do())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _close_sheet(self) -> None:
        self.sheet = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
