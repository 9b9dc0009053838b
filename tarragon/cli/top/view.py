"""The data that the page shows, and the heights of its panels. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tarragon.cli.top.entries import Entry, JobKey
from tarragon.cli.top.machines import Machine
from tarragon.cli.top.state import Place

T = TypeVar("T")

_MIN_ROWS = 4
_REPLICAS_SHARE = 3
_NODES_SHARE = 6
HEAD = 3
"""Rows above the jobs: the cluster and namespace, the counts, and the column titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """The row of a replica of the selected job. `says` is its last log line."""

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
    """All data of a frame. `said` is the training progress of the jobs whose logs are read."""

    target: str
    namespace: str
    entries: Sequence[Entry] = ()
    at: Mapping[JobKey, int] = field(default_factory=dict)
    """The index of each entry."""
    counts: Mapping[str, int] = field(default_factory=dict)
    unread: int = 0
    queue: Mapping[JobKey, int] = field(default_factory=dict)
    said: Mapping[JobKey, str] = field(default_factory=dict)
    replicas: Sequence[ReplicaRow] = ()
    machines: Sequence[Machine] = ()
    remarks: Sequence[str] = ()
    """Notes in the nodes panel about what this user may not list."""
    trouble: str = ""
    is_complete: bool = True
    note: str = ""
    """A question or a result, shown in place of the key help."""
    hint: str = ""
    """How to submit a job, shown when there are none."""


@dataclass(frozen=True, slots=True)
class Heights:
    """The rows of each panel, without its column titles."""

    jobs: int
    replicas: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    width: int
    height: int
    now: dt.datetime


def heights(view: View, height: int) -> Heights:
    """Divide the height of the terminal. On a small one jobs get most rows, and the other panels may be omitted."""
    room = height - HEAD - 1
    nodes = min(len(view.machines) + len(view.remarks), max(1, room // _NODES_SHARE)) if room > 2 * _MIN_ROWS else 0
    room -= nodes + 1 if nodes else 0
    spare = room - len(view.entries) - 1
    replicas = min(len(view.replicas), max(2, room // _REPLICAS_SHARE, spare)) if room > 2 * _MIN_ROWS else 0
    room -= replicas + 1 if replicas else 0
    return Heights(max(1, room), replicas, nodes)


def window(rows: Sequence[T], chosen: int, room: int) -> Sequence[T]:
    """Return as many rows as fit, around the selected one."""
    first = max(0, min(chosen - room // 2, len(rows) - room))
    return rows[first : first + room]


def shown_jobs(view: View, place: Place, height: int) -> Sequence[Entry]:
    """Return the jobs whose rows are visible."""
    at = view.at.get(place.job, 0) if place.job is not None else 0
    return window(view.entries, at, heights(view, height).jobs)
