"""A round of admission looks at those about whom something may be decided."""

from __future__ import annotations

from typing import Any

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Node, NodeStatus, PodCondition
from tarragon.kube.meta import Key
from tarragon.operator.candidates import Candidate, Candidates, candidate_from
from tarragon.operator.kept import KeptJob
from tarragon.plan.intake import intake
from tarragon.plan.step import Settings
from tests.operator.stage import group, job

ADMITTED = {
    "queued": "2026-01-01T00:00:00Z",
    "admitted": "2026-01-01T00:00:01Z",
    "size": {"Worker": 2},
    "nodes": {"Worker": {"n": "0-1"}},
}
READY = Node(status=NodeStatus(conditions=[PodCondition(type="Ready", status="True")]))


def candidate(workers: int = 2, admission: dict[str, Any] | None = None, **spec: Any) -> Candidate:
    body = job("a", Worker=group(workers), **spec)
    body["metadata"] |= {"uid": "u", "annotations": {"tarragon.dev/generation": "kubeflow.org/v1"}}
    status = {} if admission is None else {"tarragon": {"state": "Running", "admission": admission}}
    found = decode(encode({**body, "status": status}), KeptJob)
    made = candidate_from(TENSORFLOW, found, intake(TENSORFLOW, found), Settings())
    assert made is not None
    return made


def test_a_job_is_open_while_one_of_its_nodes_takes_nobody() -> None:
    candidates = Candidates({Key("", "n"): Node()})
    runs = candidate(admission=ADMITTED)
    candidates.put(runs)

    assert runs.id in candidates.open


def is_open(candidate: Candidate, *nodes: str) -> bool:
    candidates = Candidates({Key("", name): READY for name in nodes})
    candidates.put(candidate)
    assert candidate.id in candidates.all
    return candidate.id in candidates.open


def test_a_job_that_waits_is_open_and_one_that_has_all_it_wishes_is_not() -> None:
    assert is_open(candidate(), "n")
    assert not is_open(candidate(admission=ADMITTED), "n")


def test_a_job_whose_wish_has_sunk_is_open() -> None:
    assert is_open(candidate(workers=1, admission=ADMITTED), "n")


def test_only_an_elastic_job_is_open_because_it_wishes_more() -> None:
    assert not is_open(candidate(workers=3, admission=ADMITTED), "n")
    assert is_open(candidate(workers=3, admission=ADMITTED, **{"min-instances": 1, "max-instances": 3}), "n")


def test_a_job_that_waits_for_another_try_is_open() -> None:
    retry = {"count": 1, "after": "2026-01-01T01:00:00Z"}

    assert is_open(candidate(admission={**ADMITTED, "retry": retry}), "n")


def test_a_job_is_open_once_one_of_its_nodes_is_gone() -> None:
    nodes = {Key("", "n"): READY}
    candidates = Candidates(nodes)
    runs = candidate(admission=ADMITTED)
    candidates.put(runs)
    nodes.clear()
    candidates.nodes_changed()

    assert runs.id in candidates.open
