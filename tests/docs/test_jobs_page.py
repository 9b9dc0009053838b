"""What docs/jobs.md tells to write is understood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tarragon.job import conditions
from tarragon.job.annotations import checkpoint_seconds, resizes_by_restart, restarts_as_gang, retryable_exit_codes
from tarragon.job.eviction_notice import CHECKPOINT_REQUEST_ANNOTATION, EVICTION_TIME_ANNOTATION
from tarragon.job.model import TrainingJob
from tests.docs.markdown import ROOT, lines
from tests.frameworks.jobs import job_of, tfjob


def snippets() -> Iterator[dict[str, Any]]:
    block: list[str] = []
    for line in [*lines((ROOT / "docs" / "jobs.md").read_text())]:
        if line.language == "yaml":
            block.append(line.text)
        elif block:
            yield yaml.safe_load("\n".join(block))
            block = []


def written(annotation: str) -> TrainingJob:
    of_jobs = (each for each in snippets() if "metadata" in each)
    (found,) = [each for each in of_jobs if f"tarragon.dev/{annotation}" in each["metadata"]["annotations"]]
    job = tfjob({"Worker": 2})
    job["metadata"]["annotations"] = found["metadata"]["annotations"]
    return job_of(job)


def test_the_annotations_of_the_page_mean_what_it_says() -> None:
    assert restarts_as_gang(written("restart"))
    assert resizes_by_restart(written("resize"))
    assert retryable_exit_codes(written("retryable-exit-codes")) == {1, 42}
    assert checkpoint_seconds(written("checkpoint-seconds")) == 30


def test_the_notes_of_the_page_are_those_that_pods_get() -> None:
    (volume,) = [each["volumes"][0] for each in snippets() if "volumes" in each]
    assert volume["downwardAPI"]["items"][0]["fieldRef"] == {
        "fieldPath": f"metadata.annotations['{EVICTION_TIME_ANNOTATION}']"
    }
    assert f"`{CHECKPOINT_REQUEST_ANNOTATION}`" in (ROOT / "docs" / "jobs.md").read_text()


@pytest.mark.parametrize("word", ["NotGrown", "SpecRefused", "BackoffLimitExceeded", "DeadlineExceeded"])
def test_the_words_of_the_page_are_those_of_the_status(word: str) -> None:
    assert word in {value for value in vars(conditions).values() if isinstance(value, str)}
    assert word in (ROOT / "docs" / "jobs.md").read_text()
