"""Giving back what a gang holds in vain."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import pytest

from tarragon.base.times import LAST
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission, Obstacle, Retry, Wait
from tarragon.plan.lifecycle.start_timeout import LONGEST_PAUSE, Hold, forgotten_at, is_resting, revised

PS, WORKER = ReplicaType.PS, ReplicaType.WORKER
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
REFUSED = Obstacle(since=NOON, reason="Refused", message="exceeded quota: q")
WAIT = Wait(code="Refused", message="exceeded quota: q")


def after(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def workers(*indexes: int) -> set[Replica]:
    return {Replica(PS, 0), *(Replica(WORKER, index) for index in indexes)}


def admission(*indexes: int, retry: Retry | None = None, wait: Wait | None = None) -> Admission:
    nodes = dict.fromkeys(sorted(workers(*indexes)), "n")
    return Admission(
        queued=after(-60), admitted=NOON, size={PS: 1, WORKER: len(indexes)}, nodes=nodes, retry=retry, wait=wait
    )


def hold(
    held: Admission, there: Iterable[Replica], *, least: int, obstacle: Obstacle | None = REFUSED, runs: bool = False
) -> Hold:
    return Hold(admission=held, obstacle=obstacle, least={PS: 1, WORKER: least}, there=set(there), runs=runs)


def test_a_status_with_times_at_the_end_of_the_calendar_ends_nothing() -> None:
    far = Obstacle(since=LAST, reason="Refused", message="exceeded quota: q")
    held = admission(0, 1, 2, retry=Retry(count=1, after=LAST), wait=WAIT)

    assert revised(hold(held, workers(0), least=3, obstacle=far), after(60), 60) is held
    assert forgotten_at(held) == LAST


def test_a_gang_keeps_its_places_for_a_minute() -> None:
    held = admission(0, 1, 2)

    assert revised(hold(held, workers(0), least=3), after(59.9), 60) is held


def test_then_it_gives_everything_back_and_queues_anew_with_the_words() -> None:
    given = revised(hold(admission(0, 1, 2), workers(0), least=3), after(60), 60)

    assert given == Admission(queued=after(60), wait=WAIT, retry=Retry(count=1, after=after(120)))
    assert is_resting(given, after(119))
    assert not is_resting(given, after(120))


@pytest.mark.parametrize(("tries", "rest"), [(1, 120), (2, 240), (3, 480), (4, LONGEST_PAUSE), (99, LONGEST_PAUSE)])
def test_each_try_in_vain_is_followed_by_a_longer_rest(tries: int, rest: float) -> None:
    held = admission(0, 1, retry=Retry(count=tries, after=after(-1)))
    given = revised(hold(held, workers(0), least=2), after(60), 60)

    assert given.retry == Retry(count=tries + 1, after=after(60 + rest))


def test_an_elastic_gang_that_has_its_least_goes_on_without_the_rest() -> None:
    kept = revised(hold(admission(0, 1, 2, 3), workers(0, 1), least=2), after(60), 60)

    assert set(kept.nodes) == workers(0, 1)
    assert (kept.size, kept.admitted, kept.wait) == ({PS: 1, WORKER: 2}, NOON, WAIT)
    assert is_resting(kept, after(119))


def test_an_elastic_gang_without_its_first_worker_is_of_no_use_however_many_others_there_are() -> None:
    given = revised(hold(admission(0, 1, 2), workers(1, 2), least=1), after(60), 60)

    assert given.admitted is None


def test_who_is_missing_in_the_middle_stays_missing() -> None:
    """The highest index goes first, always; those above are at work."""
    held = admission(0, 1, 2, 3)

    assert revised(hold(held, workers(0, 2, 3), least=2), after(60), 60) is held


def test_once_it_is_whole_and_runs_earlier_tries_are_forgotten() -> None:
    held = admission(0, 1, retry=Retry(count=3, after=after(-1)))
    whole = workers(0, 1)

    assert revised(hold(held, whole, least=2, obstacle=None), NOON, 60) is held
    assert revised(hold(held, whole, least=2, obstacle=None, runs=True), NOON, 60).retry is None


def test_one_that_runs_below_its_wish_remembers_how_often_it_was_refused() -> None:
    held = admission(0, 1, retry=Retry(count=3, after=after(-1)), wait=WAIT)

    assert revised(hold(held, workers(0, 1), least=1, obstacle=None, runs=True), NOON, 60) is held


def test_what_kept_it_small_is_forgotten_where_it_could_not_try_again_for_long() -> None:
    """There is no room to grow, or a quota is in the way now: what an earlier try met is not why it is small."""
    held = admission(0, 1, retry=Retry(count=3, after=NOON), wait=WAIT)
    whole = hold(held, workers(0, 1), least=1, obstacle=None, runs=True)

    assert forgotten_at(held) == after(LONGEST_PAUSE)
    assert revised(whole, after(LONGEST_PAUSE - 1), 60) is held
    assert revised(whole, after(LONGEST_PAUSE), 60) == admission(0, 1)


def test_what_is_known_of_a_quota_is_not_what_it_met() -> None:
    quota = Wait(code="QueueQuotaExceeded", message="the quota of ml is 2 cpu")
    held = admission(0, 1, wait=quota)

    assert forgotten_at(held) is None
    assert revised(hold(held, workers(0, 1), least=1, obstacle=None, runs=True), after(3600), 60) == held


def test_an_obstacle_that_an_earlier_admission_met_takes_nothing_away() -> None:
    held = admission(0, 1)
    old = Obstacle(since=after(-1), reason="Refused", message="")

    assert revised(hold(held, workers(0), least=2, obstacle=old), after(3600), 60) is held
