"""Speed-ups: assumed by the prior, measured where the gang has run."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.scheduling.api.work import SpeedupCurve, SpeedupPrior, unknown_work

SIZES = st.integers(1, 10_000)
PRIORS = st.builds(SpeedupPrior, SIZES, st.sampled_from([1.0, 4.0, 8.0]))


def measured(*rates: tuple[int, float], requested: int = 4) -> SpeedupCurve:
    return SpeedupCurve(SpeedupPrior(requested), rates)


def test_one_device_is_as_fast_as_one_device() -> None:
    assert SpeedupPrior(8).at(1) == 1.0
    assert measured((4, 120.0)).at(1) == pytest.approx(1.0)


def test_replicas_beyond_the_request_help_less_than_those_within_it() -> None:
    prior = SpeedupPrior(8)

    assert prior.at(8) / prior.at(4) > prior.at(16) / prior.at(8)


@given(PRIORS, SIZES, SIZES)
def test_the_assumed_speedup_rises_with_the_size_but_never_faster(prior: SpeedupPrior, one: int, other: int) -> None:
    smaller, larger = sorted((one, other))

    assert prior.at(smaller) <= prior.at(larger) <= prior.at(smaller) * larger / smaller * (1 + 1e-9)


def test_without_measurements_the_curve_is_the_prior() -> None:
    prior = SpeedupPrior(4)

    assert [SpeedupCurve(prior).at(size) for size in (1, 4, 9)] == [prior.at(size) for size in (1, 4, 9)]


def test_measured_sizes_have_the_ratio_that_was_measured() -> None:
    curve = measured((2, 10.0), (4, 15.0))

    assert curve.at(4) / curve.at(2) == pytest.approx(1.5)


def test_between_two_measured_sizes_the_curve_is_straight_on_logarithmic_scales() -> None:
    curve = measured((2, 10.0), (8, 40.0))

    assert curve.at(4) / curve.at(2) == pytest.approx(2.0)


def test_the_slope_of_the_last_measurements_bounds_what_is_expected_beyond_them() -> None:
    flat = measured((2, 10.0), (4, 10.0), requested=64)

    assert flat.at(8) == pytest.approx(flat.at(4))


def test_the_unit_of_the_measured_rates_does_not_matter() -> None:
    per_second, per_hour = measured((2, 1.0), (4, 1.5)), measured((2, 3600.0), (4, 5400.0))

    assert [per_second.at(size) for size in range(1, 20)] == pytest.approx([per_hour.at(size) for size in range(1, 20)])


def test_a_gang_is_judged_up_to_twice_the_largest_measured_size() -> None:
    assert measured((2, 1.0), (8, 3.0)).largest_known == 16
    assert SpeedupCurve(SpeedupPrior(4)).largest_known is None


def test_what_others_have_shown_is_expected_beyond_the_gangs_own_measurements() -> None:
    others = SpeedupCurve(SpeedupPrior(1), ((1, 10.0), (2, 16.0), (8, 60.0)))
    gang = SpeedupCurve(others, ((2, 1.0),))

    assert [gang.at(size) / gang.at(2) for size in (1, 2, 8)] == pytest.approx([10 / 16, 1, 60 / 16])
    assert gang.largest_known == 8
    assert SpeedupCurve(others).largest_known is None


def test_the_slope_that_a_gang_has_shown_itself_bounds_no_size_that_others_have_shown() -> None:
    others = SpeedupCurve(SpeedupPrior(1), ((1, 1.0), (2, 1.5), (4, 2.9)))
    gang = SpeedupCurve(others, ((1, 1.0), (2, 1.1)))

    assert gang.at(4) == pytest.approx(1.1 * 2.9 / 1.5)


RATES = st.dictionaries(SIZES, st.floats(1e-6, 1e6), min_size=1, max_size=6).map(lambda rates: sorted(rates.items()))


def rising(rates: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return tuple((each, max(rate for _, rate in rates[: index + 1])) for index, (each, rate) in enumerate(rates))


@given(PRIORS, st.none() | RATES, RATES, SIZES)
def test_a_curve_of_rising_rates_is_positive_and_rises(
    prior: SpeedupPrior, of_others: list[tuple[int, float]] | None, rates: list[tuple[int, float]], size: int
) -> None:
    curve = SpeedupCurve(SpeedupCurve(prior, rising(of_others)) if of_others else prior, rising(rates))

    speeds = [curve.at(each) for each in (size, size + 1, 2 * size)]

    assert all(math.isfinite(speed) and speed > 0 for speed in speeds)
    assert all(slow <= fast * (1 + 1e-9) for slow, fast in pairwise(speeds))


def test_unknown_work_is_larger_for_gangs_that_request_more() -> None:
    assert unknown_work(8, 1).remaining == 2 * unknown_work(4, 1).remaining == 4 * unknown_work(1, 2).remaining
