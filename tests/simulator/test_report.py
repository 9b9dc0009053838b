"""The page of a simulation: one file, bounded in size, in which no name is markup."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from click.testing import CliRunner

from tarragon.cli.main import root_command
from tarragon.cli.options.settings import GlobalOptions

HEADER = "name,submit_s,replicas,duration_s\n"


def report(tmp_path: Path, rows: str, *args: str) -> str:
    trace, page = tmp_path / "jobs.csv", tmp_path / "report.html"
    trace.write_text(HEADER + rows)
    command = ["simulate", str(trace), "--report", str(page), *args]
    result = CliRunner().invoke(root_command, command, obj=GlobalOptions())
    assert result.exit_code == 0, result.output
    return page.read_text()


def test_the_page_has_the_table_and_the_charts_of_each_policy(tmp_path: Path) -> None:
    text = report(tmp_path, "a,0,4,600\nb,5,64,60\n", "--policy", "fifo", "--policy", "srpt", "--bounds", "spec")

    drawings = re.findall(r"<svg.*?</svg>", text)
    assert len(drawings) == 2 + 2 * 2
    assert all(ET.fromstring(each) is not None for each in drawings)  # noqa: S314 - our own
    assert "<td>fifo</td>" in text
    assert "bound: alone" in text


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = report(tmp_path, "a,0,4,600\n")

    assert not re.findall(r"https?:|<script|<link|<img|url\(|@import", text)


def test_names_of_a_trace_are_text(tmp_path: Path) -> None:
    text = report(tmp_path, "<script>alert(1)</script>,0,4,600\n")

    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_page_stays_small_however_many_jobs_there_are(tmp_path: Path) -> None:
    rows = "".join(f"job-{index},{index * 20},1,{60 + index % 900}\n" for index in range(3000))

    assert len(report(tmp_path, rows, "--policy", "plain-backfill", "--policy", "tiresias")) < 500_000


def test_a_policy_in_a_deadlock_is_in_the_table_only(tmp_path: Path) -> None:
    text = report(tmp_path, "a,0,48,600\nb,0,48,600\n", "--policy", "kube-scheduler-mixed")

    assert "<td>deadlock</td>" in text
    assert "<svg" not in text


def test_a_report_that_cannot_be_written_is_an_error_with_the_reason(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"{HEADER}a,0,4,600\n")
    command = ["simulate", str(trace), "--report", str(tmp_path / "none" / "r.html")]

    result = CliRunner().invoke(root_command, command, obj=GlobalOptions(), standalone_mode=False)

    assert "can't write the report" in str(result.exception)
