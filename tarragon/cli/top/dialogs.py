"""The dialogs of `top`: a text view in place of the page, or a question that needs an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.log_lines import terminal_text
from tarragon.cli.top.command_runner import command_arguments, run_command
from tarragon.cli.top.events import event_lines
from tarragon.cli.top.job_rows import JobRow
from tarragon.cli.top.page_state import Action, PageState, Panel
from tarragon.cli.top.pager import Pager
from tarragon.cli.top.watches import ClusterWatch
from tarragon.client.errors import ApiError
from tarragon.job.phase import Phase

LOG_TAIL_LINES = "500"
"""The number of lines of each replica at the start of a log view."""


AddLines = Callable[[Sequence[str]], None]
LineSource = Callable[[AddLines], Awaitable[None]]
"""Passes lines to its argument as they arrive, and returns after the last."""
_HELP_LINES: Sequence[str] = (
    "Jobs are at the top, below them the replicas of the selected job, then the",
    "nodes. Everything is updated live.",
    "",
    "  ↑ ↓ or k j             select                   PgUp PgDn Home End or g G",
    "  Tab, ← →               jobs, replicas, nodes    Esc returns to the jobs",
    "  Enter or l             logs of the selected job, or of the selected replica",
    "  e                      events",
    "  d                      describe",
    "  w                      why it waits, does not start, or failed",
    "  /                      filter by name, state and reason",
    "  s, r                   sort by age, name, state, restarts, GPUs; reverse",
    "  n                      toggle all namespaces",
    "  p                      suspend or resume (asks first)",
    "  x                      delete (asks first)",
    "  Ctrl-L                 redraw                   Ctrl-Z  stop; `fg` returns",
    "  q or Ctrl-C            quit",
    "",
    "QUEUE is the position in the queue, among the jobs shown; RST: restarts.",
    "PROGRESS OR REASON: why the job waits or failed; else what it reported, or the",
    "latest epochs, steps and losses in the log of its chief, launcher or first worker.",
    "PODS, GPUS, CPU and MEMORY of nodes: requested/allocatable; used, if measured.",
    "SHARED GPUS: by number of the vGPU, the pods that share it, with their parts.",
)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A confirmation: `y` runs the command `line`, any other key cancels."""

    text: str
    arguments: Sequence[str]


class Dialogs:
    """Shows one dialog at a time. `note` replaces the key help in the last row until the next key."""

    def __init__(self, settings: GlobalOptions, clock: Clock, changed: Callable[[], None]) -> None:
        self.pager: Pager | None = None
        self._note = ""
        self._question: Confirmation | None = None
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
        if self.pager is not None:
            if not self.pager.press(key):
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

    def open(self, wish: Action, watches: ClusterWatch, each: JobRow | None, place: PageState) -> None:
        """Open the text view or the question for an action."""
        if wish is Action.HELP:
            self._show(Pager("tarragon top: keys", begins_at_end=False, colors=self._colors), self._help)
        elif each is None:
            self._note = "No job selected."
        elif wish is Action.DELETE:
            text = f"Delete {each.job.name} in namespace {each.namespace} and its pods? y/n"
            self._question = Confirmation(text, command_arguments(self._settings, "delete", each))
        elif wish is Action.SUSPEND:
            verb = "resume" if each.state == Phase.SUSPENDED.value else "suspend"
            text = f"{verb.capitalize()} {each.job.name} in namespace {each.namespace}? y/n"
            self._question = Confirmation(text, command_arguments(self._settings, verb, each))
        elif wish is Action.EVENTS:
            title = f"Events of {each.job.name} in namespace {each.namespace}"
            self._show(Pager(title, begins_at_end=True, colors=self._colors), self._events(watches, each))
        else:
            self._command(wish, watches, each, place)

    async def close(self) -> None:
        await self._close_sheet()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _command(self, wish: Action, watches: ClusterWatch, each: JobRow, place: PageState) -> None:
        options: list[str] = []
        if wish is Action.LOGS:
            options = ["--follow", "--tail", LOG_TAIL_LINES]
            members = watches.state.progress(each).replicas
            if place.panel is Panel.REPLICAS and place.replica < len(members):
                options += ["--replica", members[place.replica].name]
        line = command_arguments(self._settings, wish.value, each, *options)
        sheet = Pager(f"tarragon {' '.join(line)}", begins_at_end=wish is Action.LOGS, colors=self._colors)
        self._show(sheet, self._command_output(line))

    def _show(self, sheet: Pager, source: LineSource) -> None:
        async def fill() -> None:
            def add(lines: Sequence[str]) -> None:
                sheet.add(lines)
                self._changed()

            await source(add)
            sheet.is_complete = True
            self._changed()

        self.pager = sheet
        self._reading = asyncio.create_task(fill())

    def _command_output(self, line: Sequence[str]) -> LineSource:
        async def source(add: AddLines) -> None:
            await run_command(self._settings, line, add)

        return source

    def _events(self, watches: ClusterWatch, each: JobRow) -> LineSource:
        async def source(add: AddLines) -> None:
            if watches.cluster is None:
                add([watches.error or "The cluster does not answer."])
                return
            try:
                pods = watches.state.controlled_pods(each.job.key.namespace)
                add(await event_lines(watches.cluster, each.job, pods, self._clock.now()))
            except ApiError as error:
                add([f"Can't read events: {error.summary}"])

        return source

    async def _help(self, add: AddLines) -> None:
        add(_HELP_LINES)

    def _run(self, question: Confirmation) -> None:
        async def do() -> None:
            output: list[str] = []
            await run_command(self._settings, question.arguments, output.extend)
            texts = [terminal_text(line, colors=False).strip() for line in output]
            self._note = next((text for text in reversed(texts) if text), "Done.")
            self._changed()

        self._note = f"tarragon {' '.join(question.arguments)} …"
        task = asyncio.create_task(do())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _close_sheet(self) -> None:
        self.pager = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
