from __future__ import annotations

import datetime as dt

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.job.status import Admission, WaitReason
from tarragon.plan.nodes.left_to_kube_scheduler import is_left_to_kube_scheduler, leave_to_kube_scheduler

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BEFORE = NOW - dt.timedelta(hours=1)


def test_a_job_that_waits_is_admitted_at_its_wish_without_a_place() -> None:
    waiting = Admission(queued_at=BEFORE, wait=WaitReason(code="InsufficientResources", message="no"))

    admission = leave_to_kube_scheduler(waiting, {PS: 1, WORKER: 2}, NOW)

    assert admission == Admission(queued_at=BEFORE, admitted_at=NOW, size={PS: 1, WORKER: 2})
    assert is_left_to_kube_scheduler(admission)


def test_a_job_that_has_its_places_keeps_them_all() -> None:
    placed = Admission(queued_at=BEFORE, admitted_at=BEFORE, size={WORKER: 1}, nodes={Replica(WORKER, 0): "n"})

    assert leave_to_kube_scheduler(placed, {WORKER: 1}, NOW) == placed
    assert not is_left_to_kube_scheduler(placed)


def test_replicas_that_come_later_find_their_places_by_kube_scheduler() -> None:
    placed = Admission(queued_at=BEFORE, admitted_at=BEFORE, size={WORKER: 1}, nodes={Replica(WORKER, 0): "n"})

    grown = leave_to_kube_scheduler(placed, {WORKER: 3}, NOW)

    assert (grown.size, grown.nodes, grown.admitted_at) == ({WORKER: 3}, placed.nodes, BEFORE)
    assert is_left_to_kube_scheduler(grown)


def test_a_smaller_wish_gives_places_back_from_the_highest_index_down() -> None:
    nodes = {Replica(WORKER, index): "n" for index in range(3)}
    placed = Admission(queued_at=BEFORE, admitted_at=BEFORE, size={WORKER: 3}, nodes=nodes)

    assert leave_to_kube_scheduler(placed, {WORKER: 1}, NOW).nodes == {Replica(WORKER, 0): "n"}


def test_types_of_which_nobody_is_wished_are_not_counted() -> None:
    assert leave_to_kube_scheduler(Admission(queued_at=BEFORE), {PS: 0, WORKER: 1}, NOW).size == {WORKER: 1}


def test_whoever_still_waits_was_left_to_nobody() -> None:
    assert not is_left_to_kube_scheduler(None)
    assert not is_left_to_kube_scheduler(Admission(queued_at=BEFORE))
