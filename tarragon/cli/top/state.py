"""Where the user is on the page, and where a key takes them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from tarragon.cli.top.entries import SORTS, JobKey


class Panel(Enum):
    """The parts of the page that rows can be chosen in."""

    JOBS = "jobs"
    REPLICAS = "replicas"
    NODES = "nodes"


class Wish(Enum):
    """What a key asks for that is not done by looking elsewhere on the page."""

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
class Place:
    """`job` is remembered by its key, so that it stays the chosen one however the rows move around it.

    `typed` is what is being typed behind `/`, None when nothing is.
    """

    panel: Panel = Panel.JOBS
    job: JobKey | None = None
    replica: int = 0
    node: int = 0
    wanted: str = ""
    typed: str | None = None
    sort: str = "age"
    is_reversed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What there is to move on: the jobs in their order, and how many replicas and nodes. `page`: rows at a time.

    `at`: where each job stands in that order. There may be ten thousand, and nobody wants to look for one.
    """

    jobs: Sequence[JobKey] = ()
    at: Mapping[JobKey, int] = field(default_factory=dict)
    replicas: int = 0
    nodes: int = 0
    page: int = 10


Step = Callable[[Place, Rows], Place]

WISHES: Mapping[str, Wish] = MappingProxyType(
    {
        "q": Wish.QUIT,
        "l": Wish.LOGS,
        "enter": Wish.LOGS,
        "e": Wish.EVENTS,
        "d": Wish.DESCRIBE,
        "w": Wish.WHY,
        "?": Wish.HELP,
        "h": Wish.HELP,
        "n": Wish.NAMESPACES,
        "x": Wish.DELETE,
        "p": Wish.SUSPEND,
        "redraw": Wish.REDRAW,
    }
)


def pressed(place: Place, key: str, rows: Rows) -> Place | Wish:
    """Whatever has no meaning changes nothing."""
    if place.typed is not None:
        return _typed(place, place.typed, key)
    if key in WISHES:
        return WISHES[key]
    step = _STEPS.get(key)
    return step(place, rows) if step is not None else place


def settled(place: Place, rows: Rows) -> Place:
    """As it can be with these rows: a job that is gone is not the chosen one any more."""
    job = place.job if place.job in rows.at else (rows.jobs[0] if rows.jobs else None)
    return replace(
        place,
        job=job,
        replica=max(0, min(place.replica, rows.replicas - 1)) if job == place.job else 0,
        node=max(0, min(place.node, rows.nodes - 1)),
    )


def _typed(place: Place, text: str, key: str) -> Place:
    """Rows are filtered while somebody types; Enter keeps the filter, Escape takes it away."""
    if key == "enter":
        return replace(place, typed=None)
    if key == "esc":
        return replace(place, typed=None, wanted="")
    if key == "backspace":
        return replace(place, typed=text[:-1], wanted=text[:-1])
    if len(key) == 1:
        return replace(place, typed=text + key, wanted=text + key)
    return place


def _moved(by: Callable[[Rows], int]) -> Step:
    def step(place: Place, rows: Rows) -> Place:
        distance = by(rows)
        if place.panel is Panel.REPLICAS:
            return replace(place, replica=_within(place.replica + distance, rows.replicas))
        if place.panel is Panel.NODES:
            return replace(place, node=_within(place.node + distance, rows.nodes))
        if not rows.jobs:
            return place
        at = rows.at.get(place.job, 0) if place.job is not None else 0
        return replace(place, job=rows.jobs[_within(at + distance, len(rows.jobs))], replica=0)

    return step


def _within(place: int, number: int) -> int:
    return max(0, min(place, number - 1))


def _panel(by: int) -> Step:
    def step(place: Place, rows: Rows) -> Place:
        panels = [Panel.JOBS, *([Panel.REPLICAS] if rows.replicas else []), *([Panel.NODES] if rows.nodes else [])]
        at = panels.index(place.panel) if place.panel in panels else 0
        return replace(place, panel=panels[(at + by) % len(panels)])

    return step


def _back(place: Place, _: Rows) -> Place:
    """Out of a panel first, then out of the filter."""
    if place.panel is not Panel.JOBS:
        return replace(place, panel=Panel.JOBS)
    return replace(place, wanted="")


def _next_sort(place: Place, _: Rows) -> Place:
    names = list(SORTS)
    return replace(place, sort=names[(names.index(place.sort) + 1) % len(names)], is_reversed=False)


_FAR = 10**9
_STEPS: Mapping[str, Step] = MappingProxyType(
    {
        "up": _moved(lambda _: -1),
        "k": _moved(lambda _: -1),
        "down": _moved(lambda _: 1),
        "j": _moved(lambda _: 1),
        "pageup": _moved(lambda rows: -rows.page),
        "pagedown": _moved(lambda rows: rows.page),
        "home": _moved(lambda _: -_FAR),
        "g": _moved(lambda _: -_FAR),
        "end": _moved(lambda _: _FAR),
        "G": _moved(lambda _: _FAR),
        "tab": _panel(1),
        "right": _panel(1),
        "backtab": _panel(-1),
        "left": _panel(-1),
        "esc": _back,
        "/": lambda place, _: replace(place, typed=place.wanted),
        "s": _next_sort,
        "r": lambda place, _: replace(place, is_reversed=not place.is_reversed),
    }
)
