from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.jobs import problems, tfjob, warnings


def annotated(annotations: dict[str, Any]) -> dict[str, Any]:
    found = tfjob()
    return {**found, "metadata": {**found["metadata"], "annotations": annotations}}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tensorbord", "tensorboard"),
        ("Restart", "restart"),
        ("re-size", "resize"),
        ("retryable-exit-code", "retryable-exit-codes"),
        ("tensorboard_image", "tensorboard-image"),
        ("adobt", "adopt"),
    ],
)
def test_an_annotation_that_is_nearly_one_of_ours_is_warned_of(written: str, meant: str) -> None:
    manifest = annotated({f"tarragon.dev/{written}": "x"})

    assert problems(manifest) == []
    assert warnings(manifest) == [
        f'metadata.annotations["tarragon.dev/{written}"]: unknown annotation; did you mean tarragon.dev/{meant}?'
    ]


def test_annotations_of_others_and_those_that_we_write_ourselves_are_no_slips() -> None:
    extra = {"tarragon.dev/v1alpha1-extra": "{}", "tarragon.dev/manifest": "sha256:x", "tarragon.dev/gpus": "0"}

    assert warnings(annotated({"example.com/restarts": "x", "tarragon.device/logz": "x", **extra})) == []


def test_an_annotation_that_is_no_text_is_told_once() -> None:
    assert problems(annotated({"tarragon.dev/resize": True})) == [
        'metadata.annotations["tarragon.dev/resize"]: must be text, not true; write "restart", or remove it'
    ]


def test_words_that_yaml_takes_for_something_else_are_shown_as_they_count() -> None:
    found = problems(annotated({"tarragon.dev/logs": False, "tarragon.dev/retryable-exit-codes": 42, "mine": True}))

    assert found == [
        'metadata.annotations["tarragon.dev/logs"]: must be text, not false; write "json" or "text", or remove it',
        'metadata.annotations["tarragon.dev/retryable-exit-codes"]: must be text, not 42; write it in quotes: "42"',
        'metadata.annotations.mine: must be text, not true; write it in quotes: "true"',
    ]


@pytest.mark.parametrize("written", ["soon", "-1", "3601", "1.5", ""])
def test_a_time_to_save_is_seconds_of_an_hour_at_most(written: str) -> None:
    said = f"must be a number of seconds from 0 to 3600, not {written!r}"
    assert problems(annotated({"tarragon.dev/checkpoint-seconds": written})) == [
        f'metadata.annotations["tarragon.dev/checkpoint-seconds"]: {said}; write for example "30"'
    ]


def test_a_pod_group_of_kubernetes_needs_one_scheduler_for_all_pods() -> None:
    manifest = tfjob({"PS": 1, "Worker": 1})
    manifest["metadata"]["annotations"] = {"tarragon.dev/pod-group": "native"}
    groups = manifest["spec"]["tfReplicaSpecs"]
    for group in groups.values():
        group["template"]["spec"]["schedulerName"] = "default-scheduler"
    before = problems(manifest)
    groups["PS"]["template"]["spec"]["schedulerName"] = "volcano"

    assert before == []
    said = (
        "concerns only jobs that one scheduler places, not default-scheduler and volcano; "
        "write the same schedulerName in every pod template, or remove it"
    )
    assert problems(manifest) == [f'metadata.annotations["tarragon.dev/pod-group"]: {said}']
