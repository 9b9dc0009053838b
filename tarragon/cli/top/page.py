"""Draws the page: the head, the panels of jobs, replicas and nodes, and the foot. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tarragon.cli.output.style import STATES, Paint
from tarragon.cli.output.words import count
from tarragon.cli.output.wrapping import cell_width
from tarragon.cli.top.page_state import PageState
from tarragon.cli.top.panels import render_jobs, render_nodes, render_replicas
from tarragon.cli.top.table import pad_or_cut
from tarragon.cli.top.view import HEADER_ROWS, Frame, View, panel_heights


def render_page(view: View, place: PageState, frame: Frame, paint: Paint) -> list[str]:
    """Return exactly as many rows as the terminal has."""
    room = panel_heights(view, frame.height)
    rows = [*_head(view, place, frame, paint), *render_jobs(view, place, frame, paint, room.jobs)]
    rows += [""] * (HEADER_ROWS + room.jobs - len(rows))
    if room.replicas:
        rows += render_replicas(view, place, frame, paint, room.replicas)
    if room.nodes:
        rows += render_nodes(view, place, frame, paint, room.nodes)
    return [*rows[: frame.height - 1], _foot(view, place, frame, paint)]


def _head(view: View, place: PageState, frame: Frame, paint: Paint) -> Iterator[str]:
    where = f"namespace {view.namespace}" if view.namespace else "all namespaces"
    order = f"by {place.sort}{', reversed' if place.is_reversed else ''}"
    right = f"{order}  {frame.now:%H:%M:%S}Z"
    room = frame.width - len(right) - len(where) - 4
    if room < len(view.target) // 2:
        yield paint(pad_or_cut(f"{where}  {view.target}", frame.width), "bold")
    else:
        target = pad_or_cut(view.target, min(room, cell_width(view.target)))
        yield paint(target, "bold") + f"  {where}".ljust(frame.width - cell_width(target) - len(right)) + right
    if view.error:
        yield paint(pad_or_cut(f"! {view.error}", frame.width).rstrip(), "red")
        return
    yield from _counts(view, place, frame, paint)


def _counts(view: View, place: PageState, frame: Frame, paint: Paint) -> Iterator[str]:
    if not view.is_loaded:
        yield "Loading …"
        return
    total = sum(view.counts.values())
    parts = [(count(total, "job"), "")]
    parts += [(f"{number} {state}", STATES.get(state, "")) for state, number in Counter(view.counts).most_common()]
    if view.undecoded:
        parts.append((f"{view.undecoded} more loading", "dim"))
    if place.filter:
        parts.append((f"{len(view.entries)} match “{place.filter}”", "bold"))
    line, left = "", frame.width
    for text, color in parts:
        if len(text) > left:
            break
        line += paint(text, color) + "  "
        left -= len(text) + 2
    yield line.rstrip()


def _foot(view: View, place: PageState, frame: Frame, paint: Paint) -> str:
    if place.filter_input is not None:
        return pad_or_cut(f"/{place.filter_input}_  Enter keeps the filter, Esc clears it", frame.width).rstrip()
    if view.note:
        return paint(pad_or_cut(view.note, frame.width).rstrip(), "bold")
    keys = (
        ("enter", "logs"),
        ("e", "events"),
        ("d", "describe"),
        ("w", "why"),
        ("/", "filter"),
        ("s", "sort"),
        ("n", "namespaces"),
        ("?", "help"),
        ("q", "quit"),
    )
    return key_help(keys, frame.width, paint)


def key_help(keys: Sequence[tuple[str, str]], width: int, paint: Paint) -> str:
    """Return the key help: as many keys as fit, and last_two the last two, help and quit."""
    line, last_two = "", keys[-2:]
    left = width - len("  ".join(f"{key} {what}" for key, what in last_two))
    for key, what in keys[:-2]:
        needed = len(key) + len(what) + 3
        if needed <= left:
            line += f"{paint(key, 'bold')} {what}  "
            left -= needed
    return line + "  ".join(f"{paint(key, 'bold')} {what}" for key, what in last_two)
