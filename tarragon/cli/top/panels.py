"""Draws the three panels: jobs, replicas of the selected job, and nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tarragon.base.quantity import format_decimal
from tarragon.cli.jobview.rows import MIN_REASON_WIDTH, brief_reason
from tarragon.cli.output.style import REPLICA_TYPES, STATES, Paint
from tarragon.cli.output.wrapping import wrap
from tarragon.cli.top.job_rows import JobRow
from tarragon.cli.top.page_state import PageState, Panel
from tarragon.cli.top.table import Column, TableRow, pad_or_cut, remaining_width, render_table
from tarragon.cli.top.view import Frame, View, visible_jobs, visible_rows

WIDE_TERMINAL = 140
"""Terminal width from which all columns are shown."""
LEFT_OUT = ("AGE", "READY", "RST")
"""Columns that a narrow terminal leaves out, in this order, until the last column has its MIN_REASON_WIDTH."""


def render_jobs(view: View, place: PageState, frame: Frame, paint: Paint, room: int) -> list[str]:
    shown = visible_jobs(view, place, frame.height)
    columns = _fitting(_columns(view, shown, frame), shown, view, frame)
    lines = [
        TableRow(
            _cells(each, view, frame, columns),
            is_selected=each.key == place.job,
            is_focused=each.key == place.job and place.panel is Panel.JOBS,
        )
        for each in shown
    ]
    rows = render_table(columns, lines, frame.width, paint)
    return rows if shown else [rows[0], *_placeholder(view, place, frame)][: room + 1]


def _placeholder(view: View, place: PageState, frame: Frame) -> Iterator[str]:
    if view.error:
        # In the head the message may be cut off; here it is wrapped.
        yield from (f"  {row}" for row in wrap(view.error, frame.width - 2))
        return
    if not view.is_loaded or view.undecoded:
        return
    if place.filter:
        yield pad_or_cut(f"  No jobs match “{place.filter}”; Esc clears the filter.", frame.width).rstrip()
        return
    where = f" in namespace {view.namespace}; n shows all namespaces" if view.namespace else ""
    yield pad_or_cut(f"  No jobs{where}.", frame.width).rstrip()
    yield pad_or_cut(f"  {view.hint}", frame.width).rstrip()


def _columns(view: View, shown: Sequence[JobRow], frame: Frame) -> list[Column]:
    """Return the columns. A narrow terminal omits those that are empty for all jobs shown."""
    is_wide = frame.width >= WIDE_TERMINAL
    columns = [Column("NAME", min_width=16, max_width=max(20, frame.width // 3))]
    if not view.namespace:
        columns.append(Column("NAMESPACE", max_width=20))
    columns += [Column("STATE", min_width=9, color=_state_color), Column("READY")]
    if is_wide or any(each.gpus for each in shown):
        columns.append(Column("GPUS"))
    if is_wide or any(each.key in view.queue for each in shown):
        columns.append(Column("QUEUE"))
    if is_wide or any(each.restarts for each in shown):
        columns.append(Column("RESTARTS" if is_wide else "RST"))
    columns.append(Column("AGE", min_width=4))
    if is_wide:
        columns += [Column("KIND", min_width=5), Column("REPLICAS", min_width=20, max_width=36)]
    return [*columns, Column("PROGRESS OR REASON")]


def _fitting(columns: Sequence[Column], shown: Sequence[JobRow], view: View, frame: Frame) -> Sequence[Column]:
    """Return the columns without those for which there is no room beside the progress of the jobs, or the reason."""
    last = columns[-1]
    if not any(_progress_or_reason(each, view) for each in shown):
        return columns
    kept = columns
    for title in LEFT_OUT:
        if remaining_width(kept, [_cells(each, view, frame, kept) for each in shown], frame.width) < MIN_REASON_WIDTH:
            kept = [column for column in kept if column.title != title]
    return [*kept[:-1], replace(last, min_width=MIN_REASON_WIDTH)]


def _progress_or_reason(each: JobRow, view: View) -> str:
    return brief_reason(each.reason) or view.progress.get(each.key, "")


def _cells(each: JobRow, view: View, frame: Frame, columns: Sequence[Column]) -> list[str]:
    place = view.queue.get(each.key)
    all_cells = {
        "NAME": each.name,
        "NAMESPACE": each.namespace,
        "STATE": each.state,
        "READY": each.ready,
        "GPUS": format_decimal(each.gpus) if each.gpus else "-",
        "QUEUE": str(place) if place is not None else "-",
        "RESTARTS": str(each.restarts),
        "RST": str(each.restarts),
        "AGE": each.age(frame.now),
        "KIND": each.job.framework.kind,
        "REPLICAS": each.replicas,
        "PROGRESS OR REASON": _progress_or_reason(each, view),
    }
    return [all_cells[column.title] for column in columns]


def render_replicas(view: View, place: PageState, frame: Frame, paint: Paint, room: int) -> list[str]:
    title = f"REPLICA ({len(view.replicas)})" if len(view.replicas) > room else "REPLICA"
    types = {row.name: row.type for row in view.replicas}
    states = {row.state_text: row.state for row in view.replicas}
    columns = [
        Column(title, min_width=12, color=lambda name: REPLICA_TYPES.get(types.get(name, ""), "")),
        Column("STATE", min_width=9, color=lambda text: _state_color(states.get(text, ""))),
        Column("RESTARTS"),
        Column("NODE", max_width=24),
    ]
    is_measured = any(row.cpu != "-" for row in view.replicas)
    columns += [Column("CPU", min_width=4), Column("MEMORY")] if is_measured else []
    shares_gpus = any(row.gpu for row in view.replicas)
    columns += [Column("GPU", max_width=24)] if shares_gpus else []
    shown = visible_rows(view.replicas, place.replica, room)
    lines = [
        TableRow(
            [
                row.name,
                row.state_text,
                str(row.restarts),
                row.node or "-",
                *((row.cpu, row.memory) if is_measured else ()),
                *([row.gpu or "-"] if shares_gpus else ()),
                row.last_line,
            ],
            is_selected=place.panel is Panel.REPLICAS and row is view.replicas[place.replica],
            is_focused=place.panel is Panel.REPLICAS and row is view.replicas[place.replica],
        )
        for row in shown
    ]
    return render_table([*columns, Column("LAST LINE")], lines, frame.width, paint)


def render_nodes(view: View, place: PageState, frame: Frame, paint: Paint, room: int) -> list[str]:
    remarks = [paint(pad_or_cut(f"  {text}", frame.width).rstrip(), "yellow") for text in view.remarks]
    if not view.nodes:
        return [paint("  NODES", "dim"), *remarks][: room + 1]
    title = f"NODE ({len(view.nodes)})" if len(view.nodes) > room else "NODE"
    columns = [Column(title, min_width=12), Column("STATE"), Column("PODS", min_width=5), Column("GPUS")]
    columns += [Column("CPU", min_width=5), Column("MEMORY", min_width=8)]
    is_measured = any(machine.used for machine in view.nodes)
    columns += [Column("CPU USED"), Column("MEMORY USED")] if is_measured else []
    fitting = max(1, room - len(remarks))
    shown = visible_rows(view.nodes, place.node, fitting)
    lines = [
        TableRow(
            [
                each.name,
                each.state,
                each.pods,
                each.gpus,
                each.cpu,
                each.memory,
                *((each.cpu_used, each.memory_used) if is_measured else ()),
                each.shared_gpus,
            ],
            is_selected=place.panel is Panel.NODES and each is view.nodes[place.node],
            is_focused=place.panel is Panel.NODES and each is view.nodes[place.node],
        )
        for each in shown
    ]
    last = Column("SHARED GPUS" if any(machine.sharing for machine in view.nodes) else "")
    return [*render_table([*columns, last], lines, frame.width, paint), *remarks][: room + 1]


def _state_color(state: str) -> str:
    return STATES.get(state, "")
