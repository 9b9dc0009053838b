"""What lies before the page: a text that is read, or a question that wants an answer."""

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
"""Lines of each replica with which a log begins."""


Add = Callable[[Sequence[str]], None]
Source = Callable[[Add], Awaitable[None]]
"""Tells lines as they come, and returns when there are no more."""


@dataclass(frozen=True, slots=True)
class Question:
    """`y` calls the command; any other key does not."""

    text: str
    line: Sequence[str]


class Desk:
    """One thing at a time. `note` stands in place of the keys until the next one is pressed."""

    def __init__(self, settings: Settings, clock: Clock, changed: Callable[[], None]) -> None:
        self.sheet: Sheet | None = None
        self._note = ""
        self._question: Question | None = None
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self._colors = settings.terminal().colors_out
        self._reading: asyncio.Task[None] | None = None
        self._doing: set[asyncio.Task[None]] = set()

    @property
    def note(self) -> str:
        return self._question.text if self._question is not None else self._note

    async def press(self, key: str) -> bool:
        """Whether the key was for us."""
        if self.sheet is not None:
            if not self.sheet.press(key):
                await self._put_away()
            return True
        self._note = ""
        if self._question is None:
            return False
        question, self._question = self._question, None
        if key in {"y", "Y"}:
            self._start(question)
        else:
            self._note = "Nothing was done."
        return True

    def open(self, wish: Wish, watches: Watches, each: Entry | None, place: Place) -> None:
        """What the wish is about: a text, or a question first."""
        if wish is Wish.HELP:
            self._read(Sheet("tarragon top: keys", begins_at_end=False, colors=self._colors), self._help)
        elif each is None:
            self._note = "No job is chosen."
        elif wish is Wish.DELETE:
            text = f"Delete {each.job.name} in namespace {each.namespace}, and end its replicas? y or n"
            self._question = Question(text, words(self._settings, "delete", each))
        elif wish is Wish.SUSPEND:
            verb = "resume" if each.state == Phase.SUSPENDED.value else "suspend"
            text = f"{verb.capitalize()} {each.job.name} in namespace {each.namespace}? y or n"
            self._question = Question(text, words(self._settings, verb, each))
        elif wish is Wish.EVENTS:
            title = f"Events of {each.job.name} in namespace {each.namespace}"
            self._read(Sheet(title, begins_at_end=True, colors=self._colors), self._events(watches, each))
        else:
            self._command(wish, watches, each, place)

    async def close(self) -> None:
        await self._put_away()
        for task in self._doing:
            task.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)

    def _command(self, wish: Wish, watches: Watches, each: Entry, place: Place) -> None:
        options: list[str] = []
        if wish is Wish.LOGS:
            options = ["--follow", "--tail", TAIL]
            members = watches.scene.progress(each).members
            if place.panel is Panel.REPLICAS and place.replica < len(members):
                options += ["--replica", members[place.replica].name]
        line = words(self._settings, wish.value, each, *options)
        sheet = Sheet(f"tarragon {' '.join(line)}", begins_at_end=wish is Wish.LOGS, colors=self._colors)
        self._read(sheet, self._heard(line))

    def _read(self, sheet: Sheet, source: Source) -> None:
        async def fill() -> None:
            def add(lines: Sequence[str]) -> None:
                sheet.add(lines)
                self._changed()

            await source(add)
            sheet.is_over = True
            self._changed()

        self.sheet = sheet
        self._reading = asyncio.create_task(fill())

    def _heard(self, line: Sequence[str]) -> Source:
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
                add([f"The events can't be read: {error.what}"])

        return source

    async def _help(self, add: Add) -> None:
        add(TEXT)

    def _start(self, question: Question) -> None:
        async def do() -> None:
            said: list[str] = []
            await heard(self._settings, question.line, said.extend)
            told = [shown(line, colors=False).strip() for line in said]
            self._note = next((line for line in reversed(told) if line), "Done.")
            self._changed()

        self._note = f"tarragon {' '.join(question.line)} …"
        task = asyncio.create_task(do())
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    async def _put_away(self) -> None:
        self.sheet = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
