"""What is left of a job's work, by what was observed; and that lies about it buy nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.job.work import SizeRecord
from tarragon.scheduling.api.work import DEFAULT_RESTART_SECONDS, SpeedupPrior, WorkEstimate
from tarragon.scheduling.estimates.estimate import (
    MAX_RESTART_SECONDS,
    MIN_REMAINING_SECONDS,
    MIN_RESTART_SECONDS,
    TAIL,
    TRUST,
    attained_level,
    estimate_work,
    is_believed,
    with_claim,
)
from tarragon.scheduling.estimates.kind_history import MAX_FINISHED, KindHistory
from tarragon.scheduling.estimates.work_record import WorkRecord

ONE = SpeedupPrior(1)
FOUR = SpeedupPrior(4)
HOUR = 3600.0


def ran(seconds: float, units: float = 0.0, **fields: float | None) -> WorkRecord:
    return WorkRecord(sizes={1: SizeRecord(seconds, units)}, **fields)


def remaining(record: WorkRecord, kind: KindHistory | None = None, prior: SpeedupPrior = ONE) -> float:
    return estimate_work(record, kind or KindHistory(), prior).remaining


# ------------------------------------------------------------------------------------------------- without any report


def test_a_job_of_which_nothing_is_known_is_like_an_unknown_one() -> None:
    assert remaining(WorkRecord()) == attained_level(0, ONE)


def test_a_job_that_has_run_for_long_is_expected_to_run_for_long() -> None:
    assert remaining(ran(10 * HOUR)) > 4 * remaining(ran(HOUR))


def test_service_counts_over_all_sizes_that_a_job_has_had() -> None:
    record = WorkRecord().observed(1, 100).observed(4, 50).observed(1, 100)

    assert record.service(FOUR) == pytest.approx(200 + 50 * FOUR.at(4))
    assert record.device_seconds(2.0) == 800


def test_a_clock_that_goes_back_takes_no_service_away() -> None:
    assert ran(100).observed(1, -50, -50) == ran(100)


def test_a_measured_restart_counts_but_an_absurd_one_does_not() -> None:
    def cost(seconds: float | None) -> float:
        return estimate_work(WorkRecord(restart_seconds=seconds), KindHistory(), ONE).restart_seconds

    assert [cost(None), cost(8), cost(1e9)] == [DEFAULT_RESTART_SECONDS, 8, MAX_RESTART_SECONDS]


def test_a_resize_that_took_no_time_costs_something_all_the_same() -> None:
    assert estimate_work(WorkRecord(restart_seconds=0.0), KindHistory(), ONE).restart_seconds == MIN_RESTART_SECONDS


# ------------------------------------------------------------------------------------------------------- with reports


def test_a_job_that_reports_its_steps_has_the_rest_that_its_rate_implies() -> None:
    assert remaining(ran(100, 100, done=100, total=1000)) == pytest.approx(900)


def test_a_rate_counts_once_it_was_measured_for_long_enough() -> None:
    assert remaining(ran(10, 100, done=100, total=1000)) == attained_level(10, ONE)


def test_nothing_is_expected_to_end_at_once() -> None:
    assert remaining(ran(100, 100, done=1000, total=1000)) == MIN_REMAINING_SECONDS


def test_a_job_that_is_late_within_reason_is_still_believed() -> None:
    promised = with_claim(ran(100, 100, done=100, total=1000), ONE)

    late = promised.observed(1, 1500, 300)

    assert is_believed(late, ONE)
    assert not is_believed(promised.observed(1, 1900), ONE)


def test_what_follows_the_last_step_takes_a_part_of_the_whole_time() -> None:
    promised = with_claim(ran(10 * HOUR, 1000, done=1000, total=1000), ONE)

    assert is_believed(promised.observed(1, TRUST * TAIL * 10 * HOUR), ONE)


def test_a_smaller_promise_replaces_a_larger_one_and_never_the_other_way_round() -> None:
    first = with_claim(ran(100, 100, done=100, total=10_000), ONE)
    smaller = with_claim(ran(200, 200, done=9_000, total=10_000, believed_until=first.believed_until), ONE)
    larger = with_claim(ran(300, 300, done=300, total=10**9, believed_until=smaller.believed_until), ONE)

    assert (smaller.believed_until or 0) < (first.believed_until or 0)
    assert larger.believed_until == smaller.believed_until


def test_an_honest_job_changes_its_promise_a_few_times_in_its_life() -> None:
    record, promises = WorkRecord(total=36_000.0), set()
    for _ in range(3600):
        record = with_claim(record.observed(1, 10, 10), ONE)
        record = WorkRecord(
            sizes=record.sizes, done=(record.done or 0) + 10, total=record.total, believed_until=record.believed_until
        )
        promises.add(record.believed_until)
        assert is_believed(record, ONE)

    assert len(promises) < 15


# ------------------------------------------------------------------------------------------------------ jobs of a kind


def test_a_job_learns_its_whole_work_from_others_of_its_kind() -> None:
    kind = KindHistory()
    kind.record("a", ran(100, 100, done=100, total=1000))

    assert remaining(WorkRecord(), kind) == pytest.approx(1000)
    assert remaining(ran(400), kind) == pytest.approx(600)


def test_a_job_that_needs_more_than_its_kind_is_not_expected_to_end_at_any_moment() -> None:
    kind = KindHistory()
    kind.record("a", ran(100, 100, done=100, total=1000))

    assert remaining(ran(5000), kind) == attained_level(5000, ONE)


def test_a_job_that_reports_is_judged_by_its_own_rate() -> None:
    kind = KindHistory()
    kind.record("a", ran(100, 1e9, done=1e9, total=1e9))

    assert remaining(ran(100, 100, done=100, total=1000), kind) == pytest.approx(900)


def test_finished_jobs_that_needed_more_say_what_is_left_on_average() -> None:
    kind = KindHistory()
    for index, work in enumerate([100, 1000, 3000]):
        kind.finish(str(index), work)

    assert [kind.mean_rest(service) for service in (0, 500, 2000, 3000)] == [4100 / 3, 1500, 1000, None]


def test_only_the_latest_finished_jobs_count() -> None:
    kind = KindHistory()
    kind.record("0", ran(100, 100, total=1000, done=100))
    for index in range(MAX_FINISHED + 1):
        kind.finish(str(index), 1e6 if not index else 10)

    assert kind.mean_rest(100) is None
    assert not kind.rates()


def test_a_deleted_job_is_forgotten() -> None:
    kind = KindHistory()
    kind.record("a", ran(100, 100, done=100, total=1000))
    kind.forget("a")
    kind.forget("a")

    assert (dict(kind.rates()), kind.usual_total()) == ({}, None)


@given(st.lists(st.floats(0, 1e9), max_size=400), st.floats(0, 1e9))
def test_the_mean_rest_is_that_of_the_works_above_the_service(works: list[float], service: float) -> None:
    kind = KindHistory()
    for index, work in enumerate(works):
        kind.finish(str(index), work)

    above = [work for work in works[-MAX_FINISHED:] if work > service]
    expected = None if not above else sum(above) / len(above) - service
    assert kind.mean_rest(service) == (None if expected is None else pytest.approx(expected, abs=1e-3))


def grown(*rates: tuple[int, float]) -> WorkRecord:
    """The record of a job that has had these sizes, with these rates."""
    return WorkRecord(sizes={size: SizeRecord(100, 100 * rate) for size, rate in rates}, done=1, total=1e6)


def finished(*records: WorkRecord) -> KindHistory:
    kind = KindHistory()
    for index, record in enumerate(records):
        kind.record(str(index), record)
        kind.finish(str(index), record.service(ONE))
    return kind


UNLIKE = [grown((1, unit), (4, 3.6 * unit)) for unit in (1, 100, 10_000)]
"""Jobs of one kind that count unlike units, and gain as much by a larger size."""


def test_what_finished_jobs_gained_by_growing_is_expected_of_others_whatever_they_count() -> None:
    kind = finished(*UNLIKE)

    not_measured = estimate_work(WorkRecord(), kind, ONE).curve
    measured = estimate_work(grown((1, 7.0)), kind, ONE).curve

    assert not kind.rates()
    assert (not_measured.at(4), measured.at(4)) == pytest.approx((3.6, 3.6))
    assert measured.largest_known == 4


def test_gains_from_size_to_size_are_chained() -> None:
    kind = finished(*[grown((1, unit), (2, 1.8 * unit)) for unit in (1, 10, 100)], *[grown((2, 1), (4, 1.5))] * 3)

    curve = estimate_work(WorkRecord(), kind, ONE).curve

    assert (curve.at(2), curve.at(4)) == pytest.approx((1.8, 2.7))


def test_two_jobs_are_too_few_to_expect_the_same_of_others() -> None:
    assert not estimate_work(WorkRecord(), finished(*UNLIKE[:2]), ONE).curve.largest_measured


def test_no_kind_is_believed_to_gain_more_than_its_size_or_to_become_slower() -> None:
    faster, slower = (finished(*[grown((1, unit), (4, gain * unit)) for unit in (1, 10, 100)]) for gain in (50, 0.5))

    assert estimate_work(WorkRecord(), faster, ONE).curve.at(4) == pytest.approx(4)
    assert estimate_work(WorkRecord(), slower, ONE).curve.at(4) == pytest.approx(1)


def test_steps_that_few_jobs_have_made_say_nothing_of_the_others() -> None:
    kind = finished(*[grown((2, unit), (4, 1.5 * unit)) for unit in (1, 10, 100)], grown((1, 1), (2, 1.9)))

    curve = estimate_work(WorkRecord(), kind, ONE).curve

    assert curve.at(4) / curve.at(2) == pytest.approx(1.5)


def test_no_job_is_expected_to_become_faster_than_its_size_whatever_others_have_shown() -> None:
    none = [grown((1, unit), (2, unit)) for unit in (1, 10, 100)]
    all_of_it = [grown((1, unit), (4, 4 * unit)) for unit in (2, 20, 200)]

    curve = estimate_work(grown((2, 1.0)), finished(*none, *all_of_it), ONE).curve

    assert curve.at(4) == pytest.approx(2 * curve.at(2))


def test_a_step_that_only_forgotten_jobs_have_made_is_forgotten() -> None:
    kind = finished(*UNLIKE)
    for index in range(MAX_FINISHED):
        kind.finish(f"later-{index}", 10)

    assert not estimate_work(WorkRecord(), kind, ONE).curve.largest_measured


def test_jobs_are_alike_again_once_the_one_that_was_not_is_gone_or_has_changed() -> None:
    kind = KindHistory()
    for name, rate in (("a", 1.0), ("b", 1.1), ("odd", 50.0)):
        kind.record(name, grown((1, rate)))
    assert not kind.rates()

    kind.record("odd", grown((1, 1.2)))
    assert kind.rates() == {1: 1.2}

    kind.record("odd", grown((1, 0.1)))
    assert not kind.rates()

    kind.forget("odd")
    assert kind.rates() == {1: 1.1}


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 3), st.sampled_from([0, 1, 2, 4, 9])), max_size=30))
def test_what_a_kind_shows_does_not_depend_on_the_order_in_which_it_was_learned(
    changes: list[tuple[str, int, int]],
) -> None:
    kind, last = KindHistory(), dict[str, WorkRecord]()
    for name, size, rate in changes:
        if rate:
            last[name] = grown((size, rate))
            kind.record(name, last[name])
        else:
            last.pop(name, None)
            kind.forget(name)
        anew = KindHistory()
        for each, record in last.items():
            anew.record(each, record)
        assert kind.rates() == anew.rates()


def test_a_job_that_has_measured_a_size_itself_is_judged_by_that() -> None:
    assert estimate_work(grown((1, 1), (4, 1.2)), finished(*UNLIKE), ONE).curve.at(4) == pytest.approx(1.2)


def test_a_new_rate_that_changes_nothing_of_what_a_kind_shows_renews_no_estimate() -> None:
    kind = finished(*UNLIKE)
    kind.record("new", grown((1, 5.0)))
    revision = kind.revision

    kind.record("new", grown((1, 5.1)))

    assert kind.revision == revision


# -------------------------------------------------------------------------------------------------- lies and nonsense

Liar = Callable[[WorkRecord, float], WorkRecord]
"""Adds a report to the record of a job that has run for so many seconds."""


def says(record: WorkRecord, done: float, total: float, units: float) -> WorkRecord:
    """The record after a report, with what the operator measures of it."""
    sizes = {size: SizeRecord(each.seconds, units) for size, each in record.sizes.items()}
    return WorkRecord(sizes=sizes, done=done, total=total, believed_until=record.believed_until)


LIARS: Mapping[str, Liar] = {
    "99 % for ever": lambda record, _: says(record, 99, 100, 99),
    "always nearly done": lambda record, seconds: says(record, seconds, seconds + 1, seconds),
    "a total that shrinks": lambda record, seconds: says(record, 10, max(11.0, 1e6 - seconds * 100), 10),
    "done that jumps": lambda record, seconds: says(record, 999 if seconds > 600 else seconds, 1000, 1000),
    "rates of 1e300": lambda record, _: says(record, 1e300, 1e300, 1e300),
    "hours at the beginning, minutes from then on": lambda record, seconds: says(
        record, seconds if seconds < 300 else 35_990, 36_000, seconds
    ),
    "nothing for an hour, then 99 %": lambda record, seconds: (
        record if seconds < HOUR else says(record, seconds * 99, seconds * 100, seconds)
    ),
}


def lives(liar: Liar) -> list[tuple[float, WorkRecord]]:
    """The record of a job on one device at each half minute of a day."""
    record, records = WorkRecord(), []
    for minute in range(2 * 24 * 60):
        record = with_claim(liar(record.observed(1, 30), minute * 30.0), ONE)
        records.append((record.service(ONE), record))
    return records


@pytest.mark.parametrize("name", LIARS)
def test_a_liar_is_put_forward_for_a_tenth_of_its_service_and_is_behind_from_then_on(name: str) -> None:
    """Being ahead means a shorter expected rest than that of a job which reports nothing and received as much."""
    day = lives(LIARS[name])
    tail = [(service, record) for service, record in day if service > 4 * HOUR]

    advantage = sum(
        30.0 for service, record in day if remaining(record) < attained_level(service, ONE) / 2 and not service < 600
    )

    assert advantage <= 0.11 * 24 * HOUR
    assert all(remaining(record) >= attained_level(service, ONE) for service, record in tail[-10:])


def test_who_reports_99_percent_from_the_first_minute_on_is_put_forward_for_minutes() -> None:
    ahead = [service for service, record in lives(LIARS["99 % for ever"]) if is_believed(record, ONE)]

    assert max(ahead) <= 30 + TRUST * MIN_REMAINING_SECONDS + 30


def test_siblings_that_lie_make_a_silent_job_urgent_for_minutes_only() -> None:
    kind = KindHistory()
    kind.record("decoy", ran(100, 1e9, done=1.0, total=1.0))

    ahead = [
        seconds for seconds in range(0, 86_400, 30) if remaining(ran(seconds), kind) < attained_level(seconds, ONE)
    ]

    assert max(ahead) <= TRUST * MIN_REMAINING_SECONDS


def test_a_liar_loses_its_measured_speedup_too() -> None:
    record = WorkRecord(
        sizes={1: SizeRecord(100, 1), 8: SizeRecord(100, 8)}, done=1, total=2, believed_until=MIN_REMAINING_SECONDS
    )

    assert not estimate_work(record, KindHistory(), FOUR).curve.rates


def test_no_gang_is_believed_to_become_faster_than_its_size() -> None:
    curve = estimate_work(WorkRecord(sizes={1: SizeRecord(100, 1), 2: SizeRecord(100, 1e9)}), KindHistory(), ONE).curve

    assert curve.at(2) <= 2 * curve.at(1) * (1 + 1e-9)


NUMBERS = st.floats(0, 1e300) | st.floats(0, 100) | st.sampled_from([0.0, 1e-300, 1e300])
RECORDS = st.builds(
    WorkRecord,
    sizes=st.dictionaries(st.integers(1, 10_000), st.builds(SizeRecord, st.floats(0, 1e9), NUMBERS), max_size=9),
    done=st.none() | NUMBERS,
    total=st.none() | NUMBERS,
    believed_until=st.none() | st.floats(0, 1e12),
    restart_seconds=st.none() | st.floats(0, 1e9),
)


@given(st.lists(RECORDS, max_size=4), RECORDS, st.integers(1, 10_000), st.sampled_from([1.0, 8.0]))
def test_any_nonsense_gives_a_usable_estimate(
    siblings: list[WorkRecord], record: WorkRecord, requested: int, devices: float
) -> None:
    prior, kind = SpeedupPrior(requested, devices), KindHistory()
    for index, sibling in enumerate(siblings):
        kind.record(str(index), sibling)

    found: WorkEstimate = estimate_work(with_claim(record, prior), kind, prior)

    assert MIN_REMAINING_SECONDS <= found.remaining < math.inf
    assert 0 <= found.restart_seconds <= MAX_RESTART_SECONDS
    speeds = [found.curve.at(size) for size in (1, 2, requested, 10_000)]
    assert all(0 < speed < math.inf for speed in speeds)
    assert speeds[1] <= 2 * speeds[0] * (1 + 1e-6)
