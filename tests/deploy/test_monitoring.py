"""What deploy/ ships for Prometheus and Grafana: each alert fires when it should, and alone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarragon.base.clock import FakeClock
from tarragon.operator.metrics.definitions import DEFINITIONS
from tarragon.operator.metrics.registry import Metrics
from tests.conftest import promtool
from tests.docs.markdown import ROOT, anchors

Json = dict[str, Any]

MONITORING = ROOT / "deploy" / "monitoring"
COMPONENT = ROOT / "deploy" / "components" / "monitoring"
RUNBOOK = "https://github.com/tarragon-dev/tarragon/blob/main/docs/operate.md#"
OF_PROMETHEUS = frozenset({"up"})
METRIC = re.compile(r"\b(?:tarragon|process|tf_operator|mpi_operator)_\w+|\bup\b")

HOURS = "2h"
MINUTES = 120
A = 'namespace="tarragon-system", job="tarragon-metrics", instance="10.0.0.1:8080"'
B = 'namespace="tarragon-system", job="tarragon-metrics", instance="10.0.0.2:8080"'


def always(value: float) -> str:
    return f"{value}+0x{MINUTES}"


def rising(a_minute: float) -> str:
    return f"0+{a_minute}x{MINUTES}"


HEALTHY: Mapping[str, str] = {
    **{f"tarragon_build_info{{{one}}}": always(1) for one in (A, B)},
    **{f"up{{{one}}}": always(1) for one in (A, B)},
    **{f"tarragon_is_ready{{{one}}}": always(1) for one in (A, B)},
    f"tarragon_is_leader{{{A}}}": always(1),
    f"tarragon_is_leader{{{B}}}": always(0),
    f"process_start_time_seconds{{{A}}}": always(1000),
    f"process_resident_memory_bytes{{{A}}}": always(70e6),
    f'tarragon_reconcile_seconds_count{{kind="TFJob", {A}}}': rising(60),
    f'tarragon_reconcile_errors_total{{kind="TFJob", reason="Conflict", {A}}}': rising(20),
    f'tarragon_reconcile_errors_total{{kind="TFJob", reason="Bug", {A}}}': always(0),
    f'tarragon_reconcile_errors_total{{kind="TFJob", reason="Unavailable", {A}}}': rising(1),
    f"tarragon_queue_retrying{{{A}}}": f"0 1 0 1 0+0x{MINUTES}",
    f"tarragon_queue_oldest_seconds{{{A}}}": always(0.2),
    f'tarragon_cache_troubles_total{{resource="pods", {A}}}': rising(0.1),
    f'tarragon_api_call_seconds_count{{verb="patch", resource="pods", code="200", {A}}}': rising(600),
    f'tarragon_api_call_seconds_count{{verb="patch", resource="pods", code="503", {A}}}': rising(1),
    f'tarragon_api_call_seconds_count{{verb="create", resource="pods", code="403", {A}}}': always(0),
    f'tarragon_admission_errors_total{{reason="Bug", {A}}}': always(0),
    f'tarragon_admission_errors_total{{reason="Unavailable", {A}}}': always(0),
    f'tarragon_admission_round_seconds_bucket{{le="1.0", {A}}}': rising(60),
    f'tarragon_admission_round_seconds_bucket{{le="5.0", {A}}}': rising(60),
    f'tarragon_admission_round_seconds_bucket{{le="+Inf", {A}}}': rising(60),
    f'tarragon_scheduler_refused_decisions_total{{decision="Place", {A}}}': always(0),
    f'tarragon_jobs_longest_wait_seconds{{kind="TFJob", code="InsufficientResources", {A}}}': always(7200),
    f'tarragon_jobs_longest_wait_seconds{{kind="TFJob", code="NodeFull", {A}}}': always(60),
    f'tarragon_jobs_waiting{{kind="TFJob", code="NeverFits", {A}}}': always(0),
    f"tarragon_queues_file_refused{{{A}}}": always(0),
    f"tarragon_admissions_refused_total{{{A}}}": always(0),
    f'tarragon_jobs{{kind="TFJob", phase="Running", {A}}}': always(100),
    f'tarragon_jobs_restarted_total{{kind="TFJob", {A}}}': rising(0.5),
    f'tarragon_jobs_failed_total{{kind="TFJob", {A}}}': rising(0.2),
    f'tarragon_jobs_succeeded_total{{kind="TFJob", {A}}}': rising(1),
    f'tarragon_progress_reports_total{{result="accepted", {A}}}': rising(600),
    f'tarragon_progress_reports_total{{result="unavailable", {A}}}': rising(1),
}
"""Series of an installation in which nothing is wrong, by the minute."""

ONCE = "0+0x100 1+0x20"
NOTHING = f"_x{MINUTES}"
FAULTS: Mapping[str, Mapping[str, str]] = {
    "TarragonAbsent": dict.fromkeys(HEALTHY, NOTHING),
    "TarragonProcessDown": {f"up{{{B}}}": always(0)},
    "TarragonNoLeader": {f"tarragon_is_leader{{{A}}}": always(0)},
    "TarragonSeveralLeaders": {f"tarragon_is_leader{{{B}}}": always(1)},
    "TarragonNotReady": {f"tarragon_is_ready{{{B}}}": always(0)},
    "TarragonRestarts": {f"process_start_time_seconds{{{A}}}": f"1000+0x100 1+1x{MINUTES - 100}"},
    "TarragonLeaderChanges": {
        f"tarragon_is_leader{{{A}}}": "1+0x9 0+0x9 " * 6,
        f"tarragon_is_leader{{{B}}}": "0+0x9 1+0x9 " * 6,
    },
    "TarragonMemoryHigh": {f"process_resident_memory_bytes{{{A}}}": always(740e6)},
    "TarragonReconcileErrors": {
        f'tarragon_reconcile_errors_total{{kind="TFJob", reason="Unavailable", {A}}}': rising(10)
    },
    "TarragonJobStuck": {f"tarragon_queue_retrying{{{A}}}": always(1)},
    "TarragonQueueSlow": {f"tarragon_queue_oldest_seconds{{{A}}}": always(90)},
    "TarragonBug": {f'tarragon_admission_errors_total{{reason="Bug", {A}}}': ONCE},
    "TarragonWatchErrors": {f'tarragon_cache_troubles_total{{resource="pods", {A}}}': rising(2)},
    "TarragonApiErrors": {
        f'tarragon_api_call_seconds_count{{verb="patch", resource="pods", code="503", {A}}}': rising(60)
    },
    "TarragonCallsForbidden": {
        f'tarragon_api_call_seconds_count{{verb="create", resource="pods", code="403", {A}}}': rising(0.5)
    },
    "TarragonSchedulingSlow": {f'tarragon_admission_round_seconds_bucket{{le="1.0", {A}}}': rising(30)},
    "TarragonSchedulingFails": {f'tarragon_admission_errors_total{{reason="Unavailable", {A}}}': rising(2)},
    "TarragonJobWaitsLong": {
        f'tarragon_jobs_longest_wait_seconds{{kind="TFJob", code="InsufficientResources", {A}}}': always(90000)
    },
    "TarragonJobCannotStart": {
        f'tarragon_jobs_longest_wait_seconds{{kind="TFJob", code="NodeFull", {A}}}': always(3600)
    },
    "TarragonJobNeverFits": {f'tarragon_jobs_waiting{{kind="TFJob", code="NeverFits", {A}}}': always(2)},
    "TarragonQueuesFileRefused": {f"tarragon_queues_file_refused{{{A}}}": always(1)},
    "TarragonAdmissionsForged": {f"tarragon_admissions_refused_total{{{A}}}": ONCE},
    "TarragonRestartStorm": {f'tarragon_jobs_restarted_total{{kind="TFJob", {A}}}': rising(3)},
    "TarragonJobsFail": {f'tarragon_jobs_failed_total{{kind="TFJob", {A}}}': rising(2)},
    "TarragonProgressReportsFail": {f'tarragon_progress_reports_total{{result="unavailable", {A}}}': rising(100)},
}
"""What is different when an alert is to fire, by its name."""


def rules() -> list[Json]:
    (group,) = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    found: list[Json] = group["rules"]
    return found


def dashboard() -> Json:
    found: Json = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def run_promtool(*arguments: str | Path, stdin: bytes = b"") -> None:
    done = subprocess.run(
        [str(promtool()), *map(str, arguments)], input=stdin, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def scene(name: str, changes: Mapping[str, str], *alerts: str) -> Json:
    """A test of promtool: exactly these alerts fire in the end."""
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in {**HEALTHY, **changes}.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": HOURS,
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts],
            }
        ],
    }


def run_scenes(folder: Path, *scenes: Json) -> None:
    path = folder / "scenes.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(MONITORING / "rules.yaml")], "evaluation_interval": "1m", "tests": scenes})
    )
    run_promtool("test", "rules", path)


@pytest.mark.promtool
def test_each_alert_fires_when_what_it_is_for_happens_and_no_other_one(tmp_path: Path) -> None:
    assert set(FAULTS) == {rule["alert"] for rule in rules()}

    run_scenes(tmp_path, *(scene(alert, changes, alert) for alert, changes in FAULTS.items()))


@pytest.mark.promtool
def test_no_alert_fires_where_nothing_is_wrong(tmp_path: Path) -> None:
    run_scenes(tmp_path, scene("healthy", {}))


@pytest.mark.promtool
def test_two_installations_in_a_cluster_with_a_leader_each_are_not_several_leaders(tmp_path: Path) -> None:
    other = A.replace("tarragon-system", "team-a").replace("10.0.0.1", "10.0.0.9")

    run_scenes(tmp_path, scene("two", {f"tarragon_is_leader{{{other}}}": always(1)}))


@pytest.mark.promtool
def test_an_alert_says_what_happened_where(tmp_path: Path) -> None:
    labels = {"namespace": "tarragon-system", "job": "tarragon-metrics", "kind": "TFJob", "code": "NodeFull"}
    (rule,) = [each for each in rules() if each["alert"] == "TarragonJobCannotStart"]
    expected = {**rule["annotations"], "summary": "A TFJob can't be started (NodeFull)"}
    told = scene("told", FAULTS["TarragonJobCannotStart"], "TarragonJobCannotStart") | {
        "alert_rule_test": [
            {
                "alertname": "TarragonJobCannotStart",
                "eval_time": HOURS,
                "exp_alerts": [{"exp_labels": {**labels, "severity": "warning"}, "exp_annotations": expected}],
            }
        ]
    }

    run_scenes(tmp_path, told)


@pytest.mark.promtool
def test_promtool_finds_no_fault_in_the_rules_the_queries_and_the_metrics(tmp_path: Path) -> None:
    # A rules file is what promtool parses; Grafana fills in its variables.
    filled = [query.replace("$__rate_interval", "5m").replace("$namespace", ".*") for query in queries()]
    recorded = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(filled)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))

    run_promtool("check", "rules", MONITORING / "rules.yaml", path)
    run_promtool("check", "metrics", stdin=Metrics(FakeClock(), "1.2.3").render())
    assert len(filled) > 30


@pytest.mark.promtool
def test_prometheus_takes_the_configuration_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text((MONITORING / "rules.yaml").read_text())
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "operate.md").read_text(), re.MULTILINE | re.DOTALL)
    (configuration,) = [yaml.safe_load(block) for block in blocks if "scrape_configs" in block]
    (scraped,) = configuration["scrape_configs"]
    # Debian builds Prometheus without the discovery of Kubernetes.
    assert scraped.pop("kubernetes_sd_configs")[0]["role"] == "pod"
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration))

    run_promtool("check", "config", "--syntax-only", tmp_path / "prometheus.yaml")
    assert f'job="{scraped["job_name"]}"' in A


def test_alerts_and_panels_ask_only_for_metrics_that_exist() -> None:
    known = {
        f"{each.name}{suffix}"
        for each in DEFINITIONS
        for suffix in {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}[each.type]
    }
    of_the_process = set(re.findall(r"^(process_\w+) ", Metrics(FakeClock(), "1").render().decode(), re.MULTILINE))
    asked = {name for text in (*queries(), *(rule["expr"] for rule in rules())) for name in METRIC.findall(text)}

    assert asked - known - of_the_process - OF_PROMETHEUS == set()
    assert {"tarragon_is_leader", "tarragon_jobs_longest_wait_seconds", "up"} <= asked


def test_each_alert_has_a_severity_and_a_section_in_the_page_for_those_who_are_called() -> None:
    sections = anchors((ROOT / "docs" / "operate.md").read_text())

    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
        url, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert f"{url}#" == RUNBOOK
        assert anchor == rule["alert"].lower()
        assert anchor in sections


def test_the_objects_for_prometheus_operator_have_the_same_rules_and_dashboard() -> None:
    rule = yaml.safe_load((COMPONENT / "prometheus-rule.yaml").read_text())
    config_map = yaml.safe_load((COMPONENT / "dashboard.yaml").read_text())

    assert rule["spec"] == yaml.safe_load((MONITORING / "rules.yaml").read_text())
    assert json.loads(config_map["data"]["tarragon.json"]) == dashboard()
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_service_monitor_selects_the_port_of_metrics_and_no_other() -> None:
    monitor = yaml.safe_load((COMPONENT / "service-monitor.yaml").read_text())
    services = [
        each
        for name in ("tarragon.yaml", "progress.yaml")
        for each in yaml.safe_load_all((ROOT / "deploy" / name).read_text())
        if each["kind"] == "Service"
        and monitor["spec"]["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    ]
    (endpoint,) = monitor["spec"]["endpoints"]

    scraped = [each for each in services for port in each["spec"]["ports"] if port["name"] == endpoint["port"]]
    assert [each["metadata"]["name"] for each in scraped] == ["tarragon-metrics"]
    assert {each["metadata"]["namespace"] for each in scraped} == {monitor["metadata"]["namespace"]}


def test_the_dashboard_is_one_that_grafana_9_shows_with_any_data_source() -> None:
    board = dashboard()
    panels = board["panels"]

    assert board["schemaVersion"] <= 37
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} == {"row", "stat", "timeseries"}
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Health",
        "Queue and waiting jobs",
        "Use of the cluster",
        "Scheduler",
        "Calls to the API server",
    ]
    assert set(re.findall(r'"uid": "([^"]*)"', json.dumps(board))) == {"tarragon", "${datasource}"}
    assert {name for query in queries() for name in re.findall(r"\$(\w+)", query)} == {
        "__rate_interval",
        *(variable["name"] for variable in board["templating"]["list"] if variable["name"] != "datasource"),
    }
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
