"""The data that the page shows, and the heights of its panels. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tarragon.cli.top.job_rows import JobKey, JobRow
from tarragon.cli.top.node_rows import NodeRow
from tarragon.cli.top.page_state import PageState

T = TypeVar("T")

_MIN_ROWS = 4
_REPLICAS_SHARE = 3
_NODES_SHARE = 6
HEADER_ROWS = 3
"""Rows above the jobs: the cluster and namespace, the counts, and the column titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """The row of a replica of the selected job. `last_line` is its last log line."""

    name: str
    type: str
    state: str
    state_text: str
    """The state with the exit code and the reason."""
    restarts: int
    node: str
    cpu: str = "-"
    memory: str = "-"
    gpu: str = ""
    """Its part of a GPU, if it shares one."""
    last_line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All data of a frame. `progress` is the training progress of the jobs whose logs are read."""

    target: str
    namespace: str
    entries: Sequence[JobRow] = ()
    index_of: Mapping[JobKey, int] = field(default_factory=dict)
    """The index of each entry."""
    counts: Mapping[str, int] = field(default_factory=dict)
    undecoded: int = 0
    queue: Mapping[JobKey, int] = field(default_factory=dict)
    progress: Mapping[JobKey, str] = field(default_factory=dict)
    replicas: Sequence[ReplicaRow] = ()
    nodes: Sequence[NodeRow] = ()
    remarks: Sequence[str] = ()
    """Notes in the nodes panel about what this user may not list."""
    error: str = ""
    is_loaded: bool = True
    note: str = ""
    """A question or a result, shown in place of the key help."""
    hint: str = ""
    """How to submit a job, shown when there are none."""


@dataclass(frozen=True, slots=True)
class PanelHeights:
    """The rows of each panel, without its column titles."""

    jobs: int
    replicas: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    width: int
    height: int
    now: dt.datetime


def panel_heights(view: View, height: int) -> PanelHeights:
    """Divide the height of the terminal. On a small one jobs get most rows, and the other panels may be omitted."""
    room = height - HEADER_ROWS - 1
    nodes = min(len(view.nodes) + len(view.remarks), max(1, room // _NODES_SHARE)) if room > 2 * _MIN_ROWS else 0
    room -= nodes + 1 if nodes else 0
    spare = room - len(view.entries) - 1
    replicas = min(len(view.replicas), max(2, room // _REPLICAS_SHARE, spare)) if room > 2 * _MIN_ROWS else 0
    room -= replicas + 1 if replicas else 0
    return PanelHeights(max(1, room), replicas, nodes)


def visible_rows(rows: Sequence[T], chosen: int, room: int) -> Sequence[T]:
    """Return as many rows as fit, around the selected one."""
    first = max(0, min(chosen - room // 2, len(rows) - room))
    return rows[first : first + room]


def visible_jobs(view: View, place: PageState, height: int) -> Sequence[JobRow]:
    """Return the jobs whose rows are visible."""
    at = view.index_of.get(place.job, 0) if place.job is not None else 0
    return visible_rows(view.entries, at, panel_heights(view, height).jobs)
