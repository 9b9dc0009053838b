"""Giving back what a gang holds in vain."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tarragon.base.time_arithmetic import MAX_TIME
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica
from tarragon.job.status import Admission, AdmissionBackoff, Obstacle, WaitReason
from tarragon.plan.lifecycle.start_timeout import (
    MAX_ADMISSION_BACKOFF_SECONDS,
    GangStart,
    apply_start_timeout,
    is_in_backoff,
    retry_reset_at,
)

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
REFUSED = Obstacle(since=NOON, reason="Refused", message="exceeded quota: q")
WAIT = WaitReason(code="Refused", message="exceeded quota: q")


def after(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def workers(*indexes: int) -> set[Replica]:
    return {Replica(PS, 0), *(Replica(WORKER, index) for index in indexes)}


def admission(*indexes: int, retry: AdmissionBackoff | None = None, wait: WaitReason | None = None) -> Admission:
    nodes = dict.fromkeys(sorted(workers(*indexes)), "n")
    return Admission(
        queued_at=after(-60),
        admitted_at=NOON,
        size={PS: 1, WORKER: len(indexes)},
        nodes=nodes,
        backoff=retry,
        wait=wait,
    )


def hold(
    held: Admission, there: Iterable[Replica], *, least: int, obstacle: Obstacle | None = REFUSED, runs: bool = False
) -> GangStart:
    return GangStart(
        admission=held, obstacle=obstacle, minimum={PS: 1, WORKER: least}, replicas_in_place=set(there), is_running=runs
    )


def test_a_status_with_times_at_the_end_of_the_calendar_ends_nothing() -> None:
    far = Obstacle(since=MAX_TIME, reason="Refused", message="exceeded quota: q")
    held = admission(0, 1, 2, retry=AdmissionBackoff(attempts=1, not_before=MAX_TIME), wait=WAIT)

    assert apply_start_timeout(hold(held, workers(0), least=3, obstacle=far), after(60), 60) is held
    assert retry_reset_at(held) == MAX_TIME


def test_a_gang_keeps_its_places_for_a_minute() -> None:
    held = admission(0, 1, 2)

    assert apply_start_timeout(hold(held, workers(0), least=3), after(59.9), 60) is held


def test_then_it_gives_everything_back_and_queues_anew_with_the_words() -> None:
    given = apply_start_timeout(hold(admission(0, 1, 2), workers(0), least=3), after(60), 60)

    assert given == Admission(
        queued_at=after(60), wait=WAIT, backoff=AdmissionBackoff(attempts=1, not_before=after(120))
    )
    assert is_in_backoff(given, after(119))
    assert not is_in_backoff(given, after(120))


@pytest.mark.parametrize(
    ("tries", "rest"),
    [(1, 120), (2, 240), (3, 480), (4, MAX_ADMISSION_BACKOFF_SECONDS), (99, MAX_ADMISSION_BACKOFF_SECONDS)],
)
def test_each_try_in_vain_is_followed_by_a_longer_rest(tries: int, rest: float) -> None:
    held = admission(0, 1, retry=AdmissionBackoff(attempts=tries, not_before=after(-1)))
    given = apply_start_timeout(hold(held, workers(0), least=2), after(60), 60)

    assert given.backoff == AdmissionBackoff(attempts=tries + 1, not_before=after(60 + rest))


def test_an_elastic_gang_that_has_its_least_goes_on_without_the_rest() -> None:
    kept = apply_start_timeout(hold(admission(0, 1, 2, 3), workers(0, 1), least=2), after(60), 60)

    assert set(kept.nodes) == workers(0, 1)
    assert (kept.size, kept.admitted_at, kept.wait) == ({PS: 1, WORKER: 2}, NOON, WAIT)
    assert is_in_backoff(kept, after(119))


def test_an_elastic_gang_without_its_first_worker_is_of_no_use_however_many_others_there_are() -> None:
    given = apply_start_timeout(hold(admission(0, 1, 2), workers(1, 2), least=1), after(60), 60)

    assert given.admitted_at is None


def test_who_is_missing_in_the_middle_stays_missing() -> None:
    """The highest index goes first, always; those above are at work."""
    held = admission(0, 1, 2, 3)

    assert apply_start_timeout(hold(held, workers(0, 2, 3), least=2), after(60), 60) is held


def test_once_it_is_whole_and_runs_earlier_tries_are_forgotten() -> None:
    held = admission(0, 1, retry=AdmissionBackoff(attempts=3, not_before=after(-1)))
    whole = workers(0, 1)

    assert apply_start_timeout(hold(held, whole, least=2, obstacle=None), NOON, 60) is held
    assert apply_start_timeout(hold(held, whole, least=2, obstacle=None, runs=True), NOON, 60).backoff is None


def test_one_that_runs_below_its_wish_remembers_how_often_it_was_refused() -> None:
    held = admission(0, 1, retry=AdmissionBackoff(attempts=3, not_before=after(-1)), wait=WAIT)

    assert apply_start_timeout(hold(held, workers(0, 1), least=1, obstacle=None, runs=True), NOON, 60) is held


def test_what_kept_it_small_is_forgotten_where_it_could_not_try_again_for_long() -> None:
    """There is no room to grow, or a quota is in the way now: what an earlier try met is not why it is small."""
    held = admission(0, 1, retry=AdmissionBackoff(attempts=3, not_before=NOON), wait=WAIT)
    whole = hold(held, workers(0, 1), least=1, obstacle=None, runs=True)

    assert retry_reset_at(held) == after(MAX_ADMISSION_BACKOFF_SECONDS)
    assert apply_start_timeout(whole, after(MAX_ADMISSION_BACKOFF_SECONDS - 1), 60) is held
    assert apply_start_timeout(whole, after(MAX_ADMISSION_BACKOFF_SECONDS), 60) == admission(0, 1)


def test_what_is_known_of_a_quota_is_not_what_it_met() -> None:
    quota = WaitReason(code="QueueQuotaExceeded", message="the quota of ml is 2 cpu")
    held = admission(0, 1, wait=quota)

    assert retry_reset_at(held) is None
    assert apply_start_timeout(hold(held, workers(0, 1), least=1, obstacle=None, runs=True), after(3600), 60) == held


def test_an_obstacle_that_an_earlier_admission_met_takes_nothing_away() -> None:
    held = admission(0, 1)
    old = Obstacle(since=after(-1), reason="Refused", message="")

    assert apply_start_timeout(hold(held, workers(0), least=2, obstacle=old), after(3600), 60) is held


def test_what_made_a_gang_shrink_takes_no_more_from_it() -> None:
    """A replica that was waiting for the one left out is created only after that."""
    shrunk = apply_start_timeout(hold(admission(0, 1, 2), workers(0, 1), least=1), after(60), 60)
    there = workers(0, 1) - {Replica(PS, 0)}

    assert apply_start_timeout(hold(shrunk, there, least=1), after(61), 60) is shrunk

    again = replace(REFUSED, since=after(61))
    assert apply_start_timeout(hold(shrunk, there, least=1, obstacle=again), after(120), 60) is shrunk
    assert apply_start_timeout(hold(shrunk, there, least=1, obstacle=again), after(121), 60).admitted_at is None
