from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from tarragon.job.conditions import (
    ADMITTED,
    CREATED,
    FAILED,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    TRAINING_OPERATOR_CONDITIONS,
    Conditions,
    ConditionUpdate,
    remove_condition,
    set_condition,
)

T0 = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
T1 = T0 + dt.timedelta(minutes=1)


def said(*kinds: str, known: Conditions = (), at: dt.datetime = T0) -> Conditions:
    for kind in kinds:
        known = set_condition(known, ConditionUpdate(kind, True, f"TFJob{kind}", kind), at)
    return known


def shown(conditions: Conditions) -> list[tuple[str, bool]]:
    return [(condition.type, condition.is_true) for condition in conditions]


def test_the_last_condition_is_the_most_recent() -> None:
    assert shown(said(CREATED, RUNNING, RESTARTING, RUNNING)) == [(CREATED, True), (RUNNING, True)]


def test_conditions_that_old_clients_do_not_know_are_never_the_last() -> None:
    assert shown(said(CREATED, ADMITTED, RUNNING, ADMITTED)) == [(ADMITTED, True), (CREATED, True), (RUNNING, True)]


def test_the_same_words_twice_change_nothing() -> None:
    once = said(CREATED, RUNNING)

    assert said(RUNNING, known=once, at=T1) is once


def test_other_words_alone_keep_the_time_of_transition() -> None:
    known = set_condition(said(CREATED), ConditionUpdate(CREATED, True, "Other", "words"), T1)

    assert (known[0].last_transition_time, known[0].last_update_time) == (T0, T1)


def test_running_and_restarting_exclude_each_other() -> None:
    assert shown(said(RUNNING, RESTARTING)) == [(RESTARTING, True)]
    assert shown(said(RUNNING, RESTARTING, RUNNING)) == [(RUNNING, True)]


def test_an_end_turns_what_ran_to_false_and_keeps_it() -> None:
    assert shown(said(CREATED, RUNNING, SUCCEEDED)) == [(CREATED, True), (RUNNING, False), (SUCCEEDED, True)]
    assert shown(said(RESTARTING, FAILED)) == [(RESTARTING, False), (FAILED, True)]


def test_a_suspension_turns_what_ran_to_false() -> None:
    known = said(RUNNING, SUSPENDED)

    assert shown(known) == [(RUNNING, False), (SUSPENDED, True)]
    assert known[0].reason == "TFJobSuspended"


def test_after_a_suspension_the_job_may_run_again() -> None:
    resumed = set_condition(said(RUNNING, SUSPENDED), ConditionUpdate(SUSPENDED, False, "TFJobResumed", ""), T1)

    assert shown(said(RUNNING, known=resumed)) == [(SUSPENDED, False), (RUNNING, True)]


def test_what_has_ended_stays_so() -> None:
    for end in (SUCCEEDED, FAILED):
        known = said(RUNNING, end)

        assert said(RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED, known=known) == known
        assert shown(said(ADMITTED, known=known))[0] == (ADMITTED, True)


def test_a_condition_of_our_own_can_be_taken_back() -> None:
    assert shown(remove_condition(said(ADMITTED, CREATED), ADMITTED)) == [(CREATED, True)]


@given(
    st.lists(st.tuples(st.sampled_from([*sorted(TRAINING_OPERATOR_CONDITIONS), ADMITTED]), st.booleans()), max_size=12)
)
def test_whatever_is_said_no_type_is_there_twice_and_at_most_one_end(words: list[tuple[str, bool]]) -> None:
    known: Conditions = ()
    for kind, is_true in words:
        known = set_condition(known, ConditionUpdate(kind, is_true, kind, ""), T0)

    types = [condition.type for condition in known]
    assert len(types) == len(set(types))
    assert sum(condition.is_true for condition in known if condition.type in {SUCCEEDED, FAILED}) <= 1
