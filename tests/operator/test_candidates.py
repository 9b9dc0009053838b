"""A round of admission looks at those that some rule is about, not at all that there are."""

from __future__ import annotations

from typing import Any

from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.status_encoding import decode_status
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Node, NodeStatus, PodCondition
from tarragon.kube.meta import Key
from tarragon.operator.informers.cache_transforms import CachedJob
from tarragon.operator.informers.candidates import Candidate, Candidates, candidate_from
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.settings import OperatorSettings
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
    found = decode(encode({**body, "status": status}), CachedJob)
    made = candidate_from(
        TENSORFLOW, found, decode_and_validate(TENSORFLOW, found), decode_status(found.status), OperatorSettings()
    )
    assert made is not None
    return made


def known(candidate: Candidate, *nodes: str) -> Candidates:
    candidates = Candidates({Key("", name): READY for name in nodes})
    candidates.put(candidate)
    assert candidate.id in candidates.all
    return candidates


def test_a_job_without_a_record_is_looked_at_until_it_has_one() -> None:
    candidates = known(candidate(), "n")
    assert len(candidates.unrecorded) == 1

    candidates.put(candidate(admission=ADMITTED))
    assert not candidates.unrecorded


def test_a_job_of_which_a_replica_has_no_place_is_looked_at() -> None:
    nodes = {"Worker": {"n": "0", "": "1"}}
    candidates = known(candidate(admission={**ADMITTED, "nodes": nodes}), "n")
    assert len(candidates.unrecorded) == len(candidates.displaced) == 1


def test_a_job_that_just_runs_is_in_nobodys_way() -> None:
    candidates = known(candidate(admission=ADMITTED), "n")
    assert not candidates.unrecorded
    assert not candidates.start_blocked
    assert not candidates.left_to_kube_scheduler
    assert not candidates.displaced


def test_a_job_that_waits_for_another_try_is_hindered() -> None:
    retry = {"count": 1, "after": "2026-01-01T01:00:00Z"}
    assert len(known(candidate(admission={**ADMITTED, "retry": retry}), "n").start_blocked) == 1


def test_a_job_is_left_to_others_when_its_record_names_no_nodes() -> None:
    assert len(known(candidate(admission={**ADMITTED, "nodes": {}}), "n").left_to_kube_scheduler) == 1


def test_a_job_is_unsettled_while_one_of_its_nodes_takes_nobody() -> None:
    candidates = Candidates({Key("", "n"): Node()})
    candidates.put(candidate(admission=ADMITTED))
    assert len(candidates.displaced) == 1


def test_a_job_is_unsettled_once_one_of_its_nodes_is_gone() -> None:
    nodes = {Key("", "n"): READY}
    candidates = Candidates(nodes)
    runs = candidate(admission=ADMITTED)
    candidates.put(runs)
    assert candidates.jobs_on("n") == {runs.id}

    nodes.clear()
    candidates.node_changed("n")
    assert runs.id in candidates.displaced


def test_of_a_job_that_has_gone_nothing_is_kept() -> None:
    runs = candidate(admission=ADMITTED)
    candidates = known(runs)
    candidates.drop(runs.id)
    assert not candidates.all
    assert not candidates.displaced
    assert not candidates.jobs_on("n")
    assert not candidates.recorded_waits
