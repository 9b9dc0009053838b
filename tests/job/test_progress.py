from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.job.progress import (
    MAX_BODY_BYTES,
    MAX_METRICS,
    MAX_STORED_METRICS,
    Progress,
    Source,
    Unit,
    decode_progress,
    encode_progress,
    encode_trainer_status,
    merge,
    parse_report,
    progress_patch,
    progress_text,
    with_pods,
)
from tarragon.kube.codec import encode

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)


def body(metrics: dict[str, str] | None = None, **fields: Any) -> bytes:
    listed = [{"name": name, "value": value} for name, value in (metrics or {}).items()]
    return encode({"trainerStatus": {**fields, "metrics": listed}})


def parsed(metrics: dict[str, str] | None = None, **fields: Any) -> Progress:
    report = parse_report(body(metrics, **fields), NOW)
    assert report.progress is not None, report.problems
    return report.progress


def steps(done: int, *, pod: str = "a", seconds: float = 0, source: Source = Source.REPORT) -> Progress:
    at = NOW + dt.timedelta(seconds=seconds)
    return Progress(updated_at=at, done=done, total=4000, pod_uid=pod, source=source)


def test_steps_and_a_loss_among_the_metrics_are_read() -> None:
    found = parsed({"step": "1200", "total_steps": "4000", "loss": "0.1123"}, estimatedRemainingSeconds=130)

    assert progress_text(found) == "step 1,200/4,000 (30 %) · loss 0.1123 · 2m left"


def test_the_steps_of_hugging_face_transformers_are_read() -> None:
    found = parsed({"loss": "0.5", "current_step": "10", "total_steps": "40"}, progressPercentage=25)

    assert (found.done, found.total, found.unit) == (10, 40, Unit.STEPS)


def test_a_report_without_steps_is_a_percentage() -> None:
    assert progress_text(parsed(progressPercentage=30)) == "30 %"


@pytest.mark.parametrize("nonsense", ["nan", "inf", "-1", "1" + "0" * 252, "many"])
def test_a_metric_that_is_no_count_of_steps_leaves_the_percentage(nonsense: str) -> None:
    assert parsed({"step": nonsense, "total_steps": "10"}, progressPercentage=5).unit is Unit.PERCENT


def test_more_steps_than_there_are_count_as_all() -> None:
    assert parsed({"step": "12", "total_steps": "10"}).is_complete


@pytest.mark.parametrize("empty", [b"", b" ", b"{}", b'{"trainerStatus": null}', b'{"trainerStatus": {}}'])
def test_an_empty_report_has_neither_progress_nor_problems(empty: bytes) -> None:
    report = parse_report(empty, NOW)

    assert report.progress is None
    assert not report.problems


def test_all_problems_are_found_at_once() -> None:
    given = {
        "progressPercentage": 101,
        "estimatedRemainingSeconds": -1,
        "lastUpdatedTime": "yesterday",
        "metrics": [{"name": "", "value": 1}, 3],
    }

    report = parse_report(encode({"trainerStatus": given}), NOW)

    assert [problem.path.removeprefix("trainerStatus.") for problem in report.problems] == [
        "progressPercentage",
        "estimatedRemainingSeconds",
        "lastUpdatedTime",
        "metrics[0].name",
        "metrics[0].value",
        "metrics[1]",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        b"[]",
        b"{",
        b"\xff",
        b'{"trainerStatus": {"progressPercentage": NaN}}',
        b'{"trainerStatus": {"progressPercentage": 1' + b"0" * 400 + b"}}",
        b'{"trainerStatus": {"metrics": [{"name": "a\\u001b[2J", "value": "1"}]}}',
        b" " * (MAX_BODY_BYTES + 1),
        body({f"metric {number}": "1" for number in range(MAX_METRICS + 1)}),
    ],
    ids=["list", "cut", "encoding", "NaN", "huge", "escape", "long", "many"],
)
def test_a_hostile_report_is_rejected(wrong: bytes) -> None:
    report = parse_report(wrong, NOW)

    assert report.problems
    assert report.progress is None


def test_the_status_keeps_few_metrics_among_them_the_loss() -> None:
    many = {f"metric {number}": "1" for number in range(MAX_METRICS - 1)} | {"loss": "2"}

    found = parsed(many)

    assert len(found.metrics) == MAX_STORED_METRICS
    assert found.loss == "2"


def test_a_program_that_goes_back_to_its_checkpoint_is_believed() -> None:
    assert merge(steps(100), steps(50, seconds=1)) == steps(50, seconds=1)


def test_a_replica_that_is_behind_does_not_replace_the_one_that_is_furthest() -> None:
    assert merge(steps(100), steps(90, pod="b", seconds=1)) is None
    assert merge(steps(100), steps(110, pod="b", seconds=1)) is not None


def test_replicas_that_count_steps_without_a_total_are_compared_by_them() -> None:
    ahead, behind = (replace(steps(done), total=None) for done in (100, 90))

    assert merge(ahead, replace(behind, pod_uid="b")) is None
    assert merge(behind, replace(ahead, pod_uid="b")) is not None


def test_a_replica_that_is_behind_counts_once_the_other_is_silent() -> None:
    assert merge(steps(100), steps(90, pod="b", seconds=61)) is not None


def test_a_report_that_arrives_late_changes_nothing() -> None:
    assert merge(steps(100, seconds=5), steps(110)) is None


def test_a_record_from_the_future_is_replaced_because_the_clock_was_wrong() -> None:
    future = replace(steps(10), updated_at=NOW + dt.timedelta(days=365))

    assert merge(future, steps(11)) == steps(11)
    assert merge(future, steps(11, source=Source.LOG)) == steps(11, source=Source.LOG)


def test_a_log_does_not_replace_a_young_report() -> None:
    assert merge(steps(100), steps(110, seconds=10, source=Source.LOG)) is None
    assert merge(steps(100), steps(110, seconds=301, source=Source.LOG)) is not None


def test_the_last_percentage_of_a_program_that_reported_steps_is_in_steps() -> None:
    last = Progress(updated_at=NOW, done=100, total=100, unit=Unit.PERCENT, pod_uid="a")

    merged = merge(steps(3990), last)

    assert merged is not None
    assert progress_text(merged) == "step 4,000/4,000 (100 %)"


def test_the_report_of_a_former_pod_is_not_shown_as_that_of_the_new_one() -> None:
    former = with_pods(steps(1200), {"b"})

    assert former is not None
    assert (former.done, progress_text(former), encode_trainer_status(former)) == (1200, "", {})
    assert merge(former, steps(10, pod="b")) == steps(10, pod="b")
    assert with_pods(steps(1200), {"a"}) == steps(1200)


def test_the_remaining_time_shrinks_as_time_passes() -> None:
    found = parsed({"step": "1", "total_steps": "2"}, estimatedRemainingSeconds=7500)

    assert progress_text(found).endswith("2h 5m left")
    assert progress_text(found, NOW + dt.timedelta(hours=2)).endswith("5m left")
    assert progress_text(found, NOW + dt.timedelta(hours=3)) == "step 1/2 (50 %)"


def test_the_patch_removes_what_an_earlier_report_had() -> None:
    patch = progress_patch(steps(0))

    assert patch["status"]["trainerStatus"]["metrics"] is None
    assert patch["status"]["tarragon"]["progress"]["done"] == 0


_COUNTS = st.none() | st.integers(0, 10**15)


@given(
    st.builds(
        Progress,
        updated_at=st.just(NOW),
        done=_COUNTS,
        total=_COUNTS,
        unit=st.sampled_from(Unit),
        remaining_seconds=_COUNTS,
        metrics=st.dictionaries(st.text(), st.text(), max_size=3),
        pod_uid=st.text(),
        source=st.sampled_from(Source),
    ).filter(lambda progress: progress.fraction is None or progress.fraction <= 1)
)
def test_progress_survives_the_status(progress: Progress) -> None:
    ours = json.loads(encode(encode_progress(progress)))

    assert decode_progress(ours, encode_trainer_status(progress)) == progress


def test_more_done_than_there_is_in_an_edited_status_is_invalid() -> None:
    with pytest.raises(ValueError, match="5 of 3"):
        decode_progress({"at": "2026-11-21T10:00:00Z", "done": 5, "total": 3}, None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_NAMES = ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(_NAMES, _JSON)) | _JSON)
def test_no_report_raises_or_is_both_valid_and_invalid(status: Any) -> None:
    report = parse_report(json.dumps({"trainerStatus": status}).encode(), NOW)

    assert report.progress is None or not report.problems
    progress_text(report.progress, NOW)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    parse_report(data, NOW)
