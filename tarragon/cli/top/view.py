"""What the page shows, and how its parts share the room there is. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tarragon.cli.top.entries import Entry, JobKey
from tarragon.cli.top.machines import Machine
from tarragon.cli.top.state import Place

T = TypeVar("T")

_FEW = 4
_REPLICAS_SHARE = 3
_NODES_SHARE = 6
HEAD = 3
"""Rows above the jobs: where we are, how many jobs there are, and the titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """A replica of the chosen job. `says`: its last line."""

    name: str
    type: str
    state: str
    restarts: int
    node: str
    cpu: str = "-"
    memory: str = "-"
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that the page shows. `said`: how far the trainings are, of those jobs whose replicas are heard."""

    target: str
    namespace: str
    entries: Sequence[Entry] = ()
    at: Mapping[JobKey, int] = field(default_factory=dict)
    """Where each of them stands."""
    counts: Mapping[str, int] = field(default_factory=dict)
    unread: int = 0
    queue: Mapping[JobKey, int] = field(default_factory=dict)
    said: Mapping[JobKey, str] = field(default_factory=dict)
    replicas: Sequence[ReplicaRow] = ()
    machines: Sequence[Machine] = ()
    remarks: Sequence[str] = ()
    """What can't be seen of the nodes, and why."""
    trouble: str = ""
    is_complete: bool = True
    note: str = ""
    """A question, or an answer: in place of the keys."""
    hint: str = ""
    """How a job is started here."""


@dataclass(frozen=True, slots=True)
class Heights:
    """Rows of each part, without its titles."""

    jobs: int
    replicas: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    width: int
    height: int
    now: dt.datetime


def heights(view: View, height: int) -> Heights:
    """Of little room the jobs get most; replicas and nodes are there as far as they leave any."""
    room = height - HEAD - 1
    nodes = min(len(view.machines) + len(view.remarks), max(1, room // _NODES_SHARE)) if room > 2 * _FEW else 0
    room -= nodes + 1 if nodes else 0
    spare = room - len(view.entries) - 1
    replicas = min(len(view.replicas), max(2, room // _REPLICAS_SHARE, spare)) if room > 2 * _FEW else 0
    room -= replicas + 1 if replicas else 0
    return Heights(max(1, room), replicas, nodes)


def window(rows: Sequence[T], chosen: int, room: int) -> Sequence[T]:
    """As many of the rows as there is room for, so that the chosen one is among them."""
    first = max(0, min(chosen - room // 2, len(rows) - room))
    return rows[first : first + room]


def shown_jobs(view: View, place: Place, height: int) -> Sequence[Entry]:
    """Those of which a row is drawn."""
    at = view.at.get(place.job, 0) if place.job is not None else 0
    return window(view.entries, at, heights(view, height).jobs)
