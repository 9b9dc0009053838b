"""The figures of simulated policies: as rows of a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from tarragon.kube.meta import JsonObject
from tarragon.simulator.lower_bounds import LowerBounds
from tarragon.simulator.metrics import Deadlock, Summary, deadlock_of, summarize
from tarragon.simulator.results import PolicyResult

HEADER = (
    "POLICY",
    "JOBS",
    *("MEAN", "MEDIAN", "P95", "P99", "MAX", "QUEUED", "MAX-QUEUED", "MAKESPAN"),
    *("ALLOCATED", "PROGRESS", "RESIZES", "EVICTIONS", "JAIN", "ABOVE", "BELOW"),
)

Summaries = Mapping[str, Summary | Deadlock]
"""By policy."""


def summaries_of(results: Sequence[PolicyResult]) -> Summaries:
    return {result.policy: deadlock_of(result) or summarize(result) for result in results}


def table_rows(summaries: Summaries, least: LowerBounds) -> Sequence[Sequence[str]]:
    """Return the header, a row for each policy, and one for each lower bound."""
    policies = [
        [name, *(_deadlock_cells(found) if isinstance(found, Deadlock) else _cells(found))]
        for name, found in summaries.items()
    ]
    nothing = ["-"] * (len(HEADER) - 3)
    bounds = [[name, "-", f"{mean:,.0f}s", *nothing] for name, mean in _means(least).items()]
    return [HEADER, *policies, *bounds]


def json_object(summaries: Summaries, least: LowerBounds) -> JsonObject:
    policies = {name: asdict(found) for name, found in summaries.items()}
    return {"policies": policies, "lower_bounds": asdict(least)}


def csv_text(summaries: Summaries, least: LowerBounds) -> str:
    """Return a line for each policy and each lower bound. Columns are named as in JSON: `jct.mean`."""
    rows = [{"policy": name, **dict(_flat(asdict(found)))} for name, found in summaries.items()]
    rows += [{"policy": name, "jct.mean": mean} for name, mean in _means(least).items()]
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _means(least: LowerBounds) -> Mapping[str, float]:
    means = {"bound: alone": least.alone, "bound: SRPT": least.srpt_fluid, "bound: LP": least.lp}
    return {name: mean for name, mean in means.items() if mean is not None}


def _flat(figures: JsonObject, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _deadlock_cells(found: Deadlock) -> Sequence[str]:
    return [f"{found.ended}/{found.jobs}", "deadlock", *["-"] * (len(HEADER) - 3)]


def _cells(summary: Summary) -> Sequence[str]:
    jct, queueing = summary.jct, summary.queueing
    times = (jct.mean, jct.median, jct.p95, jct.p99, jct.max, queueing.mean, queueing.max, summary.makespan)
    shares = summary.allocated, summary.progress
    counts = summary.resizes, summary.evictions, summary.jain
    return [
        str(summary.jobs),
        *(f"{seconds:,.0f}s" for seconds in times),
        *(f"{share:.0%}" for share in shares),
        *(f"{number:.2f}" for number in counts),
        f"{summary.above_fair_share:.0%}",
        f"{summary.below_fair_share:.0%}",
    ]
