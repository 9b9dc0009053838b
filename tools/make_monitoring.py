#!/usr/bin/env python3
"""Write deploy/components/monitoring, and the dashboard, from deploy/monitoring/rules.yaml and the panels below.

python tools/make_monitoring.py [--check]
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.generated_files import write_or_check

DEPLOY = Path(__file__).parent.parent / "deploy"
RULES = DEPLOY / "monitoring" / "rules.yaml"
DASHBOARD = DEPLOY / "monitoring" / "dashboard.json"
COMPONENT = DEPLOY / "components" / "monitoring"
HEAD = "# Written by tools/make_monitoring.py; do not edit.\n"
NAMESPACE = "tarragon-system"
SIDECAR_LABEL = "grafana_dashboard"
"""The label by which the sidecar of Grafana's Helm chart finds dashboards."""
SCHEMA_VERSION = 37
"""Of Grafana 9.0. Later ones migrate it when they load the dashboard."""
COLUMNS = 24
HEIGHT = 7

Json = dict[str, Any]
RUNNING = 'phase=~"Running|Restarting"'
PODS_AND_NODES = 'resource=~"nodes|pods|services"'
FAILED = 'code!~"2.."'
ENDED_BADLY = 'code!="200"'
HERE = '{namespace=~"$namespace", job=~"$job"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel with one or more queries, by their legends. `width` is in columns, of which a row has 24."""

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False


def here(name: str, more: str = "") -> str:
    """A selector of a metric's series in the chosen installations."""
    return name + (f'{{{more}, namespace=~"$namespace", job=~"$job"}}' if more else HERE)


def rate(name: str, more: str = "") -> str:
    return f"rate({here(name, more)}[$__rate_interval])"


def quantile(share: float, name: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) ({rate(f'{name}_bucket')}))"


ROWS: Mapping[str, Sequence[Panel]] = {
    "Health": (
        Panel(title="Leaders", kind="stat", width=4, queries={"": f"sum({here('tarragon_is_leader')})"}),
        Panel(title="Ready operators", kind="stat", width=4, queries={"": f"sum({here('tarragon_is_ready')})"}),
        Panel(
            title="Versions",
            kind="stat",
            width=4,
            queries={"{{version}}": f"count by (version) ({here('tarragon_build_info')})"},
        ),
        Panel(title="Who leads", width=12, queries={"{{instance}}": here("tarragon_is_leader")}),
        Panel(title="Memory", unit="bytes", queries={"{{instance}}": here("process_resident_memory_bytes")}),
        Panel(title="CPU", unit="percentunit", queries={"{{instance}}": rate("process_cpu_seconds_total")}),
        Panel(
            title="Time since the start",
            unit="s",
            queries={"{{instance}}": f"time() - {here('process_start_time_seconds')}"},
        ),
    ),
    "Queue and waiting jobs": (
        Panel(
            title="Waiting jobs by reason",
            width=12,
            stacked=True,
            queries={"{{code}}": f"sum by (code) ({here('tarragon_jobs_waiting')}) > 0"},
        ),
        Panel(
            title="Longest wait by reason",
            width=12,
            unit="s",
            queries={"{{code}}": f"max by (code) ({here('tarragon_jobs_longest_wait_seconds')}) > 0"},
        ),
        Panel(
            title="From queueing to admission",
            unit="s",
            queries={f"p{share * 100:g}": quantile(share, "tarragon_job_queue_seconds") for share in (0.5, 0.9, 0.99)},
        ),
        Panel(
            title="From admission to Running",
            unit="s",
            queries={f"p{share * 100:g}": quantile(share, "tarragon_job_start_seconds") for share in (0.5, 0.9, 0.99)},
        ),
        Panel(
            title="Jobs due for a reconcile",
            queries={
                "due": f"sum({here('tarragon_queue_depth')})",
                "retrying": f"sum({here('tarragon_queue_retrying')})",
                "oldest, seconds": f"max({here('tarragon_queue_oldest_seconds')})",
            },
        ),
    ),
    "Use of the cluster": (
        Panel(
            title="Jobs by phase",
            width=12,
            stacked=True,
            queries={"{{phase}}": f"sum by (phase) ({here('tarragon_jobs')}) > 0"},
        ),
        Panel(
            title="Jobs an hour",
            width=12,
            queries={
                name: f"3600 * sum({rate(f'tarragon_jobs_{name}_total')})"
                for name in ("created", "succeeded", "failed", "restarted")
            },
        ),
        Panel(
            title="Running jobs by kind",
            stacked=True,
            queries={"{{kind}}": f"sum by (kind) ({here('tarragon_jobs', RUNNING)})"},
        ),
        Panel(
            title="Nodes and pods that the operator sees",
            queries={"{{resource}}": f"max by (resource) ({here('tarragon_cache_objects', PODS_AND_NODES)})"},
        ),
        Panel(
            title="Reports of progress a second",
            queries={"{{result}}": f"sum by (result) ({rate('tarragon_progress_reports_total')})"},
        ),
    ),
    "Scheduler": (
        Panel(
            title="Scheduling cycle",
            unit="s",
            queries={f"p{share * 100:g}": quantile(share, "tarragon_admission_round_seconds") for share in (0.5, 0.99)},
        ),
        Panel(
            title="Decisions a minute",
            queries={"{{decision}}": f"60 * sum by (decision) ({rate('tarragon_scheduler_decisions_total')})"},
        ),
        Panel(
            title="Failed cycles and refused decisions",
            queries={
                "failed: {{reason}}": f"sum by (reason) (increase({here('tarragon_admission_errors_total')}[1h])) > 0",
                "refused: {{decision}}": (
                    f"sum by (decision) (increase({here('tarragon_scheduler_refused_decisions_total')}[1h])) > 0"
                ),
                "forged admissions": f"sum(increase({here('tarragon_admissions_refused_total')}[1h])) > 0",
            },
        ),
        Panel(
            title="Reconcile",
            unit="s",
            queries={f"p{share * 100:g}": quantile(share, "tarragon_reconcile_seconds") for share in (0.5, 0.99)},
        ),
        Panel(
            title="Reconciles a second",
            queries={"{{kind}}": f"sum by (kind) ({rate('tarragon_reconcile_seconds_count')})"},
        ),
        Panel(
            title="Failed reconciles a minute",
            queries={
                "{{kind}} {{reason}}": f"60 * sum by (kind, reason) ({rate('tarragon_reconcile_errors_total')}) > 0"
            },
        ),
    ),
    "Calls to the API server": (
        Panel(
            title="Calls a second",
            stacked=True,
            queries={
                "{{verb}} {{resource}}": f"sum by (verb, resource) ({rate('tarragon_api_call_seconds_count')}) > 0"
            },
        ),
        Panel(
            title="Failed calls a second",
            queries={
                "{{code}} {{verb}} {{resource}}": (
                    f"sum by (code, verb, resource) ({rate('tarragon_api_call_seconds_count', FAILED)}) > 0"
                )
            },
        ),
        Panel(
            title="Duration, p99", unit="s", queries={"{{verb}}": quantile(0.99, "tarragon_api_call_seconds", "verb")}
        ),
        Panel(
            title="Watch events a second",
            queries={"{{resource}}": f"sum by (resource) ({rate('tarragon_watch_events_total')})"},
        ),
        Panel(
            title="Watches that end with an error, an hour",
            queries={
                "{{resource}} {{code}}": (
                    f"sum by (resource, code) (increase({here('tarragon_watches_ended_total', ENDED_BADLY)}[1h])) > 0"
                )
            },
        ),
        Panel(
            title="Failed lists and watches, an hour",
            queries={"{{resource}}": f"sum by (resource) (increase({here('tarragon_cache_troubles_total')}[1h])) > 0"},
        ),
    ),
}


def main(arguments: list[str]) -> int:
    return write_or_check(dict(rendered()), arguments, "make_monitoring.py")


def rendered() -> Iterator[tuple[Path, str]]:
    encoded = json.dumps(dashboard(), indent=1) + "\n"
    yield DASHBOARD, encoded
    yield COMPONENT / "prometheus-rule.yaml", HEAD + prometheus_rule(RULES.read_text())
    yield COMPONENT / "dashboard.yaml", HEAD + config_map(encoded)


def prometheus_rule(rules: str) -> str:
    """The rules, word for word, as an object of prometheus-operator."""
    groups = rules[rules.index("groups:") :]
    head = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _metadata("tarragon", {}),
    }
    return yaml.safe_dump(head, sort_keys=False) + "spec:\n" + textwrap.indent(groups, "  ")


def config_map(encoded: str) -> str:
    head = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata("tarragon-dashboard", {SIDECAR_LABEL: "1"}),
    }
    return yaml.safe_dump(head, sort_keys=False) + "data:\n  tarragon.json: |\n" + textwrap.indent(encoded, "    ")


def dashboard() -> Json:
    return {
        "uid": "tarragon",
        "title": "Tarragon",
        "description": "The operator, its queue and its scheduler. Alerts and what to do: docs/operate.md",
        "tags": ["tarragon", "kubernetes"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[Json]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    for name, label, query in (
        ("namespace", "Namespace", "label_values(tarragon_build_info, namespace)"),
        ("job", "Job", 'label_values(tarragon_build_info{namespace=~"$namespace"}, job)'),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _DATA_SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _panels() -> Iterator[Json]:
    number, top = 1, 0
    for title, panels in ROWS.items():
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        number, top, left = number + 1, top + 1, 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + HEIGHT
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": HEIGHT})
            number, left = number + 1, left + panel.width
        top += HEIGHT


def _panel(panel: Panel, number: int, place: Json) -> Json:
    stacking = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30} if panel.stacked else {}
    custom = {"custom": stacking} if stacking else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _DATA_SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **custom}, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _DATA_SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


_DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OPTIONS: Mapping[str, Json] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "textMode": "auto"},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
}


def _metadata(name: str, labels: Mapping[str, str]) -> Json:
    return {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "tarragon", **labels}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
