"""How a scheduling decision reads in the operator's log."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.job.status import Admission
from tarragon.operator.scheduler.decision_log import summarize
from tarragon.scheduling.api.decision import ResizeReason

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def test_the_reason_of_a_resize_is_plain_text_in_a_console() -> None:
    before = Admission(queued_at=NOON, admitted_at=NOON, size={WORKER: 1}, nodes={Replica(WORKER, 0): "a"})
    after = replace(before, size={WORKER: 2}, resize_reason=ResizeReason.NODES_IDLE)

    summary = summarize(before, after)

    assert summary is not None
    assert repr(summary.reason) == "'nodes are idle'"
