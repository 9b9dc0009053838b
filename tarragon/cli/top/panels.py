"""Draws the three panels: jobs, replicas of the selected job, and nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarragon.cli.output.style import REPLICA_TYPES, STATES, Paint
from tarragon.cli.output.wrapping import wrapped
from tarragon.cli.top.entries import Entry
from tarragon.cli.top.grid import Column, Line, drawn, fitted
from tarragon.cli.top.state import Panel, Place
from tarragon.cli.top.view import Frame, View, shown_jobs, window

WIDE = 140
"""Terminal width from which all columns are shown."""


def jobs(view: View, place: Place, frame: Frame, paint: Paint, room: int) -> list[str]:
    shown = shown_jobs(view, place, frame.height)
    columns = _columns(view, shown, frame)
    lines = [
        Line(
            _cells(each, view, frame, columns),
            is_chosen=each.key == place.job,
            is_lit=each.key == place.job and place.panel is Panel.JOBS,
        )
        for each in shown
    ]
    rows = drawn(columns, lines, frame.width, paint)
    return rows if shown else [rows[0], *_placeholder(view, place, frame)][: room + 1]


def _placeholder(view: View, place: Place, frame: Frame) -> Iterator[str]:
    if view.trouble:
        # In the head the message may be cut off; here it is wrapped.
        yield from (f"  {row}" for row in wrapped(view.trouble, frame.width - 2))
        return
    if not view.is_complete or view.unread:
        return
    if place.wanted:
        yield fitted(f"  No jobs match “{place.wanted}”; Esc clears the filter.", frame.width).rstrip()
        return
    where = f" in namespace {view.namespace}; n shows all namespaces" if view.namespace else ""
    yield fitted(f"  No jobs{where}.", frame.width).rstrip()
    yield fitted(f"  {view.hint}", frame.width).rstrip()


def _columns(view: View, shown: Sequence[Entry], frame: Frame) -> list[Column]:
    """Return the columns. A narrow terminal omits those that are empty for all jobs shown."""
    is_wide = frame.width >= WIDE
    columns = [Column("NAME", least=16, most=max(20, frame.width // 3))]
    if not view.namespace:
        columns.append(Column("NAMESPACE", most=20))
    columns += [Column("STATE", least=9, color=_state_color), Column("READY")]
    if is_wide or any(each.gpus for each in shown):
        columns.append(Column("GPUS"))
    if is_wide or any(each.key in view.queue for each in shown):
        columns.append(Column("QUEUE"))
    if is_wide or any(each.restarts for each in shown):
        columns.append(Column("RESTARTS" if is_wide else "RST"))
    columns.append(Column("AGE", least=4))
    if is_wide:
        columns += [Column("KIND", least=5), Column("REPLICAS", least=20, most=36)]
    return [*columns, Column("PROGRESS OR REASON")]


def _cells(each: Entry, view: View, frame: Frame, columns: Sequence[Column]) -> list[str]:
    place = view.queue.get(each.key)
    all_cells = {
        "NAME": each.name,
        "NAMESPACE": each.namespace,
        "STATE": each.state,
        "READY": each.ready,
        "GPUS": str(each.gpus) if each.gpus else "-",
        "QUEUE": str(place) if place is not None else "-",
        "RESTARTS": str(each.restarts),
        "RST": str(each.restarts),
        "AGE": each.age(frame.now),
        "KIND": each.job.framework.kind,
        "REPLICAS": each.replicas,
        "PROGRESS OR REASON": each.reason or view.said.get(each.key, ""),
    }
    return [all_cells[column.title] for column in columns]


def replicas(view: View, place: Place, frame: Frame, paint: Paint, room: int) -> list[str]:
    title = f"REPLICA ({len(view.replicas)})" if len(view.replicas) > room else "REPLICA"
    types = {row.name: row.type for row in view.replicas}
    columns = [
        Column(title, least=12, color=lambda name: REPLICA_TYPES.get(types.get(name, ""), "")),
        Column("STATE", least=9, color=lambda words: _state_color(words.partition(",")[0])),
        Column("RESTARTS"),
        Column("NODE", most=24),
    ]
    is_measured = any(row.cpu != "-" for row in view.replicas)
    columns += [Column("CPU", least=4), Column("MEMORY")] if is_measured else []
    shown = window(view.replicas, place.replica, room)
    lines = [
        Line(
            [
                row.name,
                row.state,
                str(row.restarts),
                row.node or "-",
                *((row.cpu, row.memory) if is_measured else ()),
                row.says,
            ],
            is_chosen=place.panel is Panel.REPLICAS and row is view.replicas[place.replica],
            is_lit=place.panel is Panel.REPLICAS and row is view.replicas[place.replica],
        )
        for row in shown
    ]
    return drawn([*columns, Column("LAST LINE")], lines, frame.width, paint)


def nodes(view: View, place: Place, frame: Frame, paint: Paint, room: int) -> list[str]:
    remarks = [paint(fitted(f"  {text}", frame.width).rstrip(), "yellow") for text in view.remarks]
    if not view.machines:
        return [paint("  NODES", "dim"), *remarks][: room + 1]
    title = f"NODE ({len(view.machines)})" if len(view.machines) > room else "NODE"
    columns = [Column(title, least=12), Column("STATE"), Column("PODS", least=5), Column("GPUS")]
    columns += [Column("CPU", least=5), Column("MEMORY", least=8)]
    is_measured = any(machine.used for machine in view.machines)
    columns += [Column("CPU USED"), Column("MEMORY USED")] if is_measured else []
    fitting = max(1, room - len(remarks))
    shown = window(view.machines, place.node, fitting)
    lines = [
        Line(
            [
                each.name,
                each.state,
                each.pods,
                each.gpus,
                each.cpu,
                each.memory,
                *((each.cpu_used, each.memory_used) if is_measured else ()),
                "",
            ],
            is_chosen=place.panel is Panel.NODES and each is view.machines[place.node],
            is_lit=place.panel is Panel.NODES and each is view.machines[place.node],
        )
        for each in shown
    ]
    return [*drawn([*columns, Column("")], lines, frame.width, paint), *remarks][: room + 1]


def _state_color(state: str) -> str:
    return STATES.get(state, "")
