"""The user's selection, filter and sort order, and how keys change them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from tarragon.cli.top.job_rows import SORT_KEYS, JobKey


class Panel(Enum):
    """The parts of the page in which a row can be selected."""

    JOBS = "jobs"
    REPLICAS = "replicas"
    NODES = "nodes"


class Action(Enum):
    """The actions of keys that do not just move the selection."""

    QUIT = "quit"
    LOGS = "logs"
    EVENTS = "events"
    DESCRIBE = "describe"
    WHY = "why"
    HELP = "help"
    NAMESPACES = "namespaces"
    DELETE = "delete"
    SUSPEND = "suspend"
    REDRAW = "redraw"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """The selection, filter and sort order.

    `job` is a key, so the job stays selected when rows move. `filter_input` is the text typed after `/`, None when
    not typing.
    """

    panel: Panel = Panel.JOBS
    job: JobKey | None = None
    replica: int = 0
    node: int = 0
    filter: str = ""
    filter_input: str | None = None
    sort: str = "age"
    is_reversed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectableRows:
    """The rows that can be selected: the jobs in order, and the numbers of replicas and nodes.

    `at` maps each job to its index, since there may be 10,000. `page` is the number of rows of a page.
    """

    jobs: Sequence[JobKey] = ()
    index_of: Mapping[JobKey, int] = field(default_factory=dict)
    replicas: int = 0
    nodes: int = 0
    page: int = 10


Move = Callable[[PageState, SelectableRows], PageState]

ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        "q": Action.QUIT,
        "l": Action.LOGS,
        "enter": Action.LOGS,
        "e": Action.EVENTS,
        "d": Action.DESCRIBE,
        "w": Action.WHY,
        "?": Action.HELP,
        "h": Action.HELP,
        "n": Action.NAMESPACES,
        "x": Action.DELETE,
        "p": Action.SUSPEND,
        "redraw": Action.REDRAW,
    }
)


def press(place: PageState, key: str, rows: SelectableRows) -> PageState | Action:
    """Return the new selection, or the action of the key. An unknown key changes nothing."""
    if place.filter_input is not None:
        return _typed(place, place.filter_input, key)
    if key in ACTIONS:
        return ACTIONS[key]
    step = _STEPS.get(key)
    return step(place, rows) if step is not None else place


def clamp(place: PageState, rows: SelectableRows) -> PageState:
    """Adjust the selection to the existing rows: a deleted job is no longer selected."""
    job = place.job if place.job in rows.index_of else (rows.jobs[0] if rows.jobs else None)
    return replace(
        place,
        job=job,
        replica=max(0, min(place.replica, rows.replicas - 1)) if job == place.job else 0,
        node=max(0, min(place.node, rows.nodes - 1)),
    )


def _typed(place: PageState, text: str, key: str) -> PageState:
    """Handle a key while the filter is typed. It applies at once; Enter keeps it, Escape clears it."""
    if key == "enter":
        return replace(place, filter_input=None)
    if key == "esc":
        return replace(place, filter_input=None, filter="")
    if key == "backspace":
        return replace(place, filter_input=text[:-1], filter=text[:-1])
    if len(key) == 1:
        return replace(place, filter_input=text + key, filter=text + key)
    return place


def _move_by(by: Callable[[SelectableRows], int]) -> Move:
    def step(place: PageState, rows: SelectableRows) -> PageState:
        distance = by(rows)
        if place.panel is Panel.REPLICAS:
            return replace(place, replica=_clamp(place.replica + distance, rows.replicas))
        if place.panel is Panel.NODES:
            return replace(place, node=_clamp(place.node + distance, rows.nodes))
        if not rows.jobs:
            return place
        at = rows.index_of.get(place.job, 0) if place.job is not None else 0
        return replace(place, job=rows.jobs[_clamp(at + distance, len(rows.jobs))], replica=0)

    return step


def _clamp(place: int, number: int) -> int:
    return max(0, min(place, number - 1))


def _switch_panel(by: int) -> Move:
    def step(place: PageState, rows: SelectableRows) -> PageState:
        panels = [Panel.JOBS, *([Panel.REPLICAS] if rows.replicas else []), *([Panel.NODES] if rows.nodes else [])]
        at = panels.index(place.panel) if place.panel in panels else 0
        return replace(place, panel=panels[(at + by) % len(panels)])

    return step


def _leave(place: PageState, _: SelectableRows) -> PageState:
    """Return to the jobs panel, or clear the filter if already there."""
    if place.panel is not Panel.JOBS:
        return replace(place, panel=Panel.JOBS)
    return replace(place, filter="")


def _next_sort(place: PageState, _: SelectableRows) -> PageState:
    names = list(SORT_KEYS)
    return replace(place, sort=names[(names.index(place.sort) + 1) % len(names)], is_reversed=False)


_FAR = 10**9
_STEPS: Mapping[str, Move] = MappingProxyType(
    {
        "up": _move_by(lambda _: -1),
        "k": _move_by(lambda _: -1),
        "down": _move_by(lambda _: 1),
        "j": _move_by(lambda _: 1),
        "pageup": _move_by(lambda rows: -rows.page),
        "pagedown": _move_by(lambda rows: rows.page),
        "home": _move_by(lambda _: -_FAR),
        "g": _move_by(lambda _: -_FAR),
        "end": _move_by(lambda _: _FAR),
        "G": _move_by(lambda _: _FAR),
        "tab": _switch_panel(1),
        "right": _switch_panel(1),
        "backtab": _switch_panel(-1),
        "left": _switch_panel(-1),
        "esc": _leave,
        "/": lambda place, _: replace(place, filter_input=place.filter),
        "s": _next_sort,
        "r": lambda place, _: replace(place, is_reversed=not place.is_reversed),
    }
)
