from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarragon.client.workqueue import INITIAL_BACKOFF, MAX_BACKOFF, MAX_BACKOFF_IF_CHANGED, WorkQueue


def test_a_key_that_is_added_twice_is_worked_on_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0)
    queue.add("a", 0)
    assert queue.get(0) == "a"
    assert queue.get(0) is None


def test_a_key_that_changes_while_it_is_worked_on_is_looked_at_again_but_not_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0)
    assert queue.get(0) == "a"
    queue.add("a", 1)
    assert queue.get(1) is None
    queue.done("a")
    assert queue.get(1) == "a"


def test_the_earlier_of_two_times_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 9)
    queue.add("a", 3)
    queue.add("a", 5)
    assert queue.next_due() == 3
    assert queue.get(2) is None
    assert queue.get(3) == "a"
    assert queue.next_due() is None


def test_failures_wait_twice_as_long_each_time_up_to_a_bound_and_success_forgets_them() -> None:
    queue: WorkQueue[str] = WorkQueue()
    delays = []
    now = 0.0
    for _ in range(20):
        queue.add("a", now)
        due = queue.next_due()
        assert due is not None
        now = due
        assert queue.get(now) == "a"
        delays.append(queue.requeue("a", now))
        now += delays[-1]
    assert delays[:3] == [INITIAL_BACKOFF, 2 * INITIAL_BACKOFF, 4 * INITIAL_BACKOFF]
    assert delays[-1] == MAX_BACKOFF
    assert queue.get(now) == "a"
    queue.done("a")
    queue.add("a", now)
    assert queue.get(now) == "a"
    assert queue.requeue("a", now) == INITIAL_BACKOFF


def test_what_the_server_asks_to_wait_is_waited() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0)
    queue.get(0)
    assert queue.requeue("a", 0, at_least=7) == 7
    assert queue.get(6.9) is None


def test_a_change_meanwhile_cuts_a_long_back_off_short_but_nothing_spins() -> None:
    queue: WorkQueue[str] = WorkQueue()
    now = 0.0
    for _ in range(20):
        queue.add("a", now)
        assert queue.get(now) == "a"
        queue.add("a", now)
        delay = queue.requeue("a", now)
        assert INITIAL_BACKOFF <= delay <= MAX_BACKOFF_IF_CHANGED
        now += delay
    queue.get(now)
    queue.add("a", now)
    assert queue.requeue("a", now, at_least=5) == 5


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from(["add", "take", "done"]))))
def test_no_key_is_lost_and_none_is_in_two_hands(operations: list[tuple[str, int, str]]) -> None:
    queue: WorkQueue[str] = WorkQueue()
    taken: set[str] = set()
    wanted: set[str] = set()
    for key, at, operation in operations:
        if operation == "add":
            queue.add(key, at)
            wanted.add(key)
        elif operation == "take":
            got = queue.get(at)
            if got is not None:
                assert got not in taken
                taken.add(got)
                wanted.discard(got)
        elif key in taken:
            taken.discard(key)
            queue.done(key)
    for key in sorted(taken):
        queue.done(key)
    rest = set()
    while (got := queue.get(100)) is not None:
        rest.add(got)
    assert rest == wanted
