from __future__ import annotations

from typing import Any

import pytest

from tarragon.cli.follow.verdict import still_running_message
from tarragon.cli.jobview.jobs import ClusterJob, read_job
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.codec import decode, encode
from tarragon.kube.meta import CustomObject
from tests.cli.scenes import ps, worker
from tests.operator.stage import group, job


def ended_job(**policy: Any) -> ClusterJob:
    """A job with two parameter servers and two workers with a GPU each."""
    workers = group(2)
    workers["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    body = job("digits", PS=group(2), Worker=workers, runPolicy=policy)
    return read_job(TENSORFLOW, decode(encode(body), CustomObject))


def test_run_on_a_cluster_says_what_still_runs_what_it_holds_and_how_to_end_it() -> None:
    said = still_running_message(ended_job(), [ps(0), ps(1), worker(1)], "tarragon delete digits")

    assert said == (
        "ps-0, ps-1 and worker-1 still run and hold 1 GPU, because cleanPodPolicy is None; "
        "`tarragon delete digits` ends them."
    )


def test_replicas_that_hold_no_gpus_are_named_alone() -> None:
    said = still_running_message(ended_job(), [ps(0)], "tarragon delete digits")

    assert said == "ps-0 still runs, because cleanPodPolicy is None; `tarragon delete digits` ends it."


@pytest.mark.parametrize("policy", ["Running", "All"])
def test_replicas_that_the_policy_ends_are_not_mentioned(policy: str) -> None:
    assert still_running_message(ended_job(cleanPodPolicy=policy), [ps(0)], "tarragon delete digits") == ""
