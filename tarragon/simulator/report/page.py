"""The page of a report: the table of figures, and the charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tarragon.simulator.report.charts import (
    ROWS,
    TOP_JOBS,
    colour_of,
    completion_times,
    devices_by_job,
    queue_lengths,
    sizes_of_jobs,
)
from tarragon.simulator.results import PolicyResult

_STYLE = """
:root{color-scheme:light dark;--soft:#8888;--edge:#8884}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}
svg{width:100%;height:auto}svg text{font-size:12px;fill:currentColor}.grid{stroke:var(--edge)}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid var(--edge);white-space:nowrap}
td:first-child,th:first-child{text-align:left}.key i{display:inline-block;width:1em;height:.7em;margin:0 .4em 0 1em}
summary{cursor:pointer;font-weight:600;margin-top:1em}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, table: Sequence[Sequence[str]], results: Sequence[PolicyResult]) -> str:
    """Return the HTML. The first row of the table is its header. Policies of which no job ended have no charts."""
    drawn = [result for result in results if result.workloads[0].jobs]
    return "".join(
        [
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name=viewport content="width=device-width">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
            *_table(table),
            *(_charts(drawn) if drawn else ()),
            "</body></html>\n",
        ]
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "<table>"
    for index, row in enumerate(rows):
        tag = "td" if index else "th"
        yield f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>"
    yield "</table>"


def _charts(results: Sequence[PolicyResult]) -> Iterator[str]:
    workload = escape(results[0].workloads[0].workload)
    yield f"<h2>Completion times</h2><p>Share of the jobs that ended within a time.</p>{_key(results)}"
    yield completion_times(results)
    yield f"<h2>Queue</h2><p>Jobs that wait, in {workload}.</p>{_key(results)}{queue_lengths(results)}"
    yield f"<h2>GPUs and sizes</h2><p>In {workload}. Point at an area or a bar to see which job it is.</p>"
    for result in results:
        first = result.workloads[0]
        yield f"<details open><summary>{escape(result.policy)}</summary>"
        yield f"<p>GPUs of the {TOP_JOBS} jobs that used most, and of the others.</p>{devices_by_job(first)}"
        yield f"<p>Sizes of at most {ROWS} jobs, thicker where they are larger; thin lines are waiting.</p>"
        yield f"{sizes_of_jobs(first)}</details>"


def _key(results: Sequence[PolicyResult]) -> str:
    entries = (
        f'<i style="background:{colour_of(index)}"></i>{escape(result.policy)}' for index, result in enumerate(results)
    )
    return f"<p class=key>{''.join(entries)}</p>"
