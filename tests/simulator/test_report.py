"""The page of a simulation: one file, bounded in size, in which no name is markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from tarragon.cli.main import root_command
from tarragon.cli.options.settings import GlobalOptions
from tarragon.simulator.report.charts import completion_times, sizes_of_jobs
from tarragon.simulator.results import JobResult, PolicyResult, Sample, SizeChange, WorkloadResult

HEADER = "name,submit_s,replicas,duration_s\n"


def report(tmp_path: Path, rows: str, *args: str) -> str:
    trace, page = tmp_path / "jobs.csv", tmp_path / "report.html"
    trace.write_text(HEADER + rows)
    command = ["simulate", str(trace), "--report", str(page), *args]
    found = CliRunner().invoke(root_command, command, obj=GlobalOptions())
    assert found.exit_code == 0, found.output
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


def result(sizes: Sequence[SizeChange], unfinished: int = 0) -> PolicyResult:
    job = JobResult(
        name="a",
        queue="",
        requested=1,
        maximum=1,
        devices=1,
        submitted_at=0,
        started_at=0,
        ended_at=sizes[-1].at,
        run_time=1,
        one_device_seconds=1,
        sizes=sizes,
        resizes=len(sizes),
        evictions=0,
    )
    samples = [Sample(0, 0, 1), Sample(job.ended_at, 0, 0)]
    workload = WorkloadResult(workload="w", devices=4, jobs=[job], samples=samples, rounds=1, unfinished=unfinished)
    return PolicyResult(policy="p", workloads=[workload])


def test_jobs_that_never_end_keep_the_line_of_completion_times_down() -> None:
    sizes = [SizeChange(0, 1, 1), SizeChange(600, 0, 0)]

    def heights(unfinished: int) -> list[float]:
        drawn = ET.fromstring(completion_times([result(sizes, unfinished)]))  # noqa: S314 - our own
        [line] = drawn.iter("polyline")
        return [float(point.split(",")[1]) for point in line.attrib["points"].split()]

    assert heights(0)[-1] == 10.0
    assert heights(3)[-1] > 150.0


def test_the_sizes_of_a_job_with_many_resizes_are_drawn_up_to_its_end() -> None:
    sizes = [*(SizeChange(float(at), 1 + at % 2, 1) for at in range(500)), SizeChange(500.0, 0, 0)]

    bars = list(ET.fromstring(sizes_of_jobs(result(sizes).workloads[0])).iter("rect"))  # noqa: S314 - our own

    ends = [float(bar.attrib["x"]) + float(bar.attrib["width"]) for bar in bars]
    assert len(bars) < 60
    assert max(ends[1:]) == pytest.approx(ends[0], abs=0.2)


def test_a_report_without_a_folder_is_an_error_before_anything_is_simulated(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"{HEADER}a,0,4,600\n")
    command = ["simulate", str(trace), "--report", str(tmp_path / "none" / "r.html")]

    found = CliRunner().invoke(root_command, command, obj=GlobalOptions(), standalone_mode=False)

    assert "there is no folder" in str(found.exception)
