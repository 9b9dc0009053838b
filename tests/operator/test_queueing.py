from __future__ import annotations

import datetime as dt
from typing import Any

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.status_encoding import decode_status
from tarragon.kube.codec import decode, encode, format_time
from tarragon.kube.meta import CustomObject
from tarragon.operator.informers.candidates import Candidate, candidate_from, is_candidate
from tarragon.operator.scheduler.admission.update import queued_since
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import group, job

NINE = dt.datetime(2026, 1, 1, 9, tzinfo=dt.UTC)
TEN = NINE + dt.timedelta(hours=1)
NOON = NINE + dt.timedelta(hours=3)


def candidate(**status: Any) -> Candidate | None:
    manifest = job("a", Worker=group(1))
    manifest["metadata"] |= {
        "uid": "u",
        "creationTimestamp": format_time(NINE),
        "annotations": {"tarragon.dev/generation": "kubeflow.org/v1"},
    }
    found = decode(encode({**manifest, "status": status}), CustomObject)
    recorded = decode_status(found.status)
    if not is_candidate(found, recorded):
        return None
    return candidate_from(TENSORFLOW, found, decode_and_validate(TENSORFLOW, found), recorded, OperatorSettings())


def condition(kind: str, status: str, at: dt.datetime) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "r", "message": "", "lastTransitionTime": format_time(at)}


def test_a_job_has_waited_since_it_was_created_even_if_nobody_looked() -> None:
    waits = candidate()

    assert waits is not None
    assert queued_since(waits, NOON) == NINE


def test_a_job_that_was_suspended_queues_anew_when_it_is_resumed() -> None:
    waits = candidate(conditions=[condition("Created", "True", NINE), condition("Suspended", "False", TEN)])

    assert waits is not None
    assert queued_since(waits, NOON) == TEN


def test_a_job_whose_resumption_is_not_told_yet_does_not_count_the_time_it_was_suspended() -> None:
    waits = candidate(conditions=[condition("Created", "True", NINE), condition("Suspended", "True", TEN)])

    assert waits is not None
    assert queued_since(waits, NOON) == NOON


def test_a_job_at_its_end_takes_no_part() -> None:
    assert candidate(conditions=[condition("Succeeded", "True", TEN)]) is None


def test_a_status_that_somebody_has_garbled_stops_nobody() -> None:
    waits = candidate(conditions="none", tarragon={"admission": {"queued": 7, "nodes": []}, "restarts": "many"})

    assert waits is not None
    assert waits.admission is None
