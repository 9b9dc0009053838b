"""Fair shares and quotas of namespaces."""

from __future__ import annotations

from tarragon.scheduling.api.decision import QUOTA_EXCEEDED, WaitCause
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tests.scheduling.rounds import Job, gpus
from tests.scheduling.scenes import every_policy, scene


@every_policy
def test_of_one_priority_the_namespace_goes_first_that_holds_least_for_its_weight(name: str) -> None:
    rules = SchedulingRules(is_fair_share=True, queues={"heavy": QueueRules(weight=3)})
    rounds = scene(name, 8, rules=rules)
    for number in range(12):
        rounds.submit(Job(name=f"heavy{number:02}", demands=[rounds.workers(1)], queue="heavy"))
        rounds.submit(Job(name=f"light{number:02}", demands=[rounds.workers(1)], queue="light"))

    rounds.advance(1)

    assert sorted(name[:5] for name in rounds.running) == ["heavy"] * 6 + ["light"] * 2


@every_policy
def test_what_a_namespace_holds_already_counts_when_the_next_is_chosen(name: str) -> None:
    rounds = scene(name, 6, rules=SchedulingRules(is_fair_share=True))
    rounds.submit(Job(name="a0", demands=[rounds.workers(4)], queue="a"))
    rounds.advance(1)
    for number in range(1, 3):
        rounds.submit(Job(name=f"a{number}", demands=[rounds.workers(1)], queue="a"))
        rounds.advance(0)
    rounds.end("a1")
    rounds.end("a2")
    rounds.submit(Job(name="a3", demands=[rounds.workers(1)], queue="a"))
    rounds.submit(Job(name="b0", demands=[rounds.workers(2)], queue="b"))
    rounds.advance(1)

    assert sorted(rounds.running) == ["a0", "b0"]


@every_policy
def test_who_would_exceed_the_quota_waits_and_blocks_nobody(name: str) -> None:
    rounds = scene(name, 8, rules=SchedulingRules(queues={"a": QueueRules(quota=gpus(4))}))
    rounds.submit(Job(name="a0", demands=[rounds.workers(3)], length=50, queue="a"))
    rounds.advance(1)
    rounds.submit(Job(name="a1", demands=[rounds.workers(2)], queue="a"))
    rounds.submit(Job(name="a2", demands=[rounds.workers(5)], queue="a"))
    rounds.submit(Job(name="b", demands=[rounds.workers(5)], queue="b"))
    rounds.advance(1)

    assert sorted(rounds.running) == ["a0", "b"]
    waits = rounds.waits
    assert waits["a1"].cause == ""
    assert (waits["a1"].code, waits["a1"].message) == (
        QUOTA_EXCEEDED,
        "the job needs 2 nvidia.com/gpu; a holds 3 nvidia.com/gpu of its quota of 4 nvidia.com/gpu",
    )
    assert (waits["a2"].code, waits["a2"].message, waits["a2"].cause) == (
        QUOTA_EXCEEDED,
        "waiting does not help: the job alone needs 5 nvidia.com/gpu; the quota of a is 4 nvidia.com/gpu",
        WaitCause.LARGER_THAN_QUOTA,
    )


@every_policy
def test_an_elastic_gang_starts_as_large_as_its_quota_lets_it_and_grows_no_further(name: str) -> None:
    rounds = scene(name, 8, rules=SchedulingRules(queues={"a": QueueRules(quota=gpus(4))}))
    rounds.submit(Job(name="rigid", demands=[rounds.workers(1)], length=200, queue="a"))
    rounds.advance(0)
    rounds.submit(Job(name="elastic", demands=[rounds.workers(5, least=1)], queue="a"))

    rounds.advance(190)
    assert rounds.size("elastic") == 3
    rounds.advance(190)

    assert rounds.size("elastic") == 4


def test_a_gang_whose_namespace_is_full_gets_its_turn_when_it_has_aged() -> None:
    rounds = scene("backfill", 8, rules=SchedulingRules(overdue_seconds=30, queues={"a": QueueRules(quota=gpus(4))}))
    for number in range(4):
        rounds.submit(Job(name=f"small{number}", demands=[rounds.workers(1)], length=40 + number, queue="a"))
    rounds.advance(1)
    rounds.submit(Job(name="large", demands=[rounds.workers(4)], queue="a"))
    for number in range(4, 40):
        rounds.submit(Job(name=f"small{number:02}", demands=[rounds.workers(1)], length=40 + number, queue="a"))
    rounds.advance(150)

    assert "large" in rounds.running
