"""What the policy `elastic` promises beside what all do: what it gives to whom, and how often it changes its mind."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from tarragon.base.resources import CPU, PODS
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.actions.target_sizes import MIN_RUN_SECONDS
from tarragon.scheduling.api.decision import Admit, Decision, Evict, Resize
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.api.work import SpeedupCurve, SpeedupPrior, WorkEstimate
from tarragon.scheduling.policies.elastic import elastic
from tarragon.scheduling.state import candidates
from tarragon.scheduling.state.candidates import CandidateTable
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.memory import Memory
from tarragon.scheduling.state.request_table import RequestTable

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
LAUNCHER = ReplicaType("Launcher")
NODES = ("a", "b", "c", "d")


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def work(rest: float, requested: int = 4) -> WorkEstimate:
    return WorkEstimate(remaining=rest, curve=SpeedupCurve(SpeedupPrior(requested)), restart_seconds=5.0)


def workers(least: int, requested: int, most: int) -> Demand:
    return Demand(
        type=WORKER,
        resources={CPU: 1000},
        minimum=least,
        requested=requested,
        maximum=most,
        eligible_nodes=frozenset(NODES),
    )


def running(
    name: str,
    nodes: Sequence[str],
    rest: float,
    *,
    demand: Demand | None = None,
    admitted: float = 1000,
) -> RunningGang:
    return RunningGang(
        name=name,
        demands=[demand or workers(1, 4, 8)],
        nodes={Replica(WORKER, index): node for index, node in enumerate(nodes)},
        is_elastic=True,
        queued_at=ago(admitted),
        admitted_at=ago(admitted),
        work=work(rest),
    )


def waiting(name: str, rest: float, demand: Demand, since: float = 10) -> WaitingGang:
    return WaitingGang(name=name, queued_at=ago(since), demands=[demand], work=work(rest))


def decided(*gangs: RunningGang | WaitingGang, slots: Mapping[str, int] | None = None) -> Mapping[str, Decision]:
    """Return the decisions by gang, on four nodes with so many CPUs; without a number, four."""
    return decided_at(NOW, gangs, dict.fromkeys(NODES, 4) if slots is None else slots)


def decided_at(
    now: dt.datetime,
    gangs: Collection[RunningGang | WaitingGang],
    slots: Mapping[str, int],
    rules: SchedulingRules | None = None,
) -> Mapping[str, Decision]:
    active = [gang for gang in gangs if isinstance(gang, RunningGang)]
    taken = Counter(node for gang in active for node in gang.nodes.values())
    states = []
    for name in NODES:
        count = slots.get(name, 0)
        free = {CPU: (count - taken[name]) * 1000}
        states.append(NodeState(name=name, capacity={CPU: count * 1000}, free=free))
    queue = [gang for gang in gangs if isinstance(gang, WaitingGang)]
    rules = rules or SchedulingRules()
    found = elastic(Snapshot(now=now, nodes=states, running=active, waiting=queue, rules=rules), Memory())
    return {decision.gang: decision for decision in found if isinstance(decision, Admit | Resize | Evict)}


def sizes(decisions: Mapping[str, Decision]) -> Mapping[str, int]:
    return {name: len(each.nodes) for name, each in decisions.items() if isinstance(each, Admit | Resize)}


def test_a_job_that_was_just_resized_keeps_its_size_for_the_cool_down() -> None:
    job = running("job", "aaaa", 10_000)

    assert sizes(decided(replace(job, resized_at=ago(61)))) == {"job": 8}

    assert not decided(replace(job, resized_at=ago(59)))


def test_a_job_that_was_just_resized_still_gives_way() -> None:
    job = replace(running("job", "aaaabbbb", 100_000), resized_at=ago(5))

    found = decided(job, waiting("short", 60, workers(4, 4, 4)), slots={"a": 4, "b": 4})

    assert sizes(found)["job"] < 8


def test_what_a_job_would_not_gain_from_goes_to_one_that_does() -> None:
    nearly_done = [running(f"short-{number}", "a", 10) for number in range(3)]

    found = decided(*nearly_done, running("long", "bb", 4000))

    assert sizes(found) == {"long": 8}


def test_a_job_with_room_to_grow_on_its_node_does_not_move_to_a_fuller_one() -> None:
    found = decided(running("job", "aa", 10_000, demand=workers(1, 4, 4)), slots={"a": 8, "b": 4})["job"]

    assert isinstance(found, Resize)
    assert Counter(found.nodes.values()) == {"a": 4}


def test_a_job_does_not_move_for_a_launcher_that_holds_nothing() -> None:
    launcher = Demand(
        type=LAUNCHER, resources={PODS: 1000}, minimum=1, requested=1, eligible_nodes=frozenset(NODES), decides=True
    )
    gang = RunningGang(
        name="job",
        demands=[workers(1, 1, 1), launcher],
        nodes={Replica(WORKER, 0): "a", Replica(LAUNCHER, 0): "b"},
        is_elastic=True,
        queued_at=ago(1000),
        admitted_at=ago(1000),
        work=work(10_000, 1),
    )

    assert not decided(gang)


def test_a_job_that_has_started_is_not_stopped_for_a_while_however_little_the_next_one_needs() -> None:
    def stopped(seconds: float) -> bool:
        long = running("long", "aaaa", 1e7, demand=workers(3, 4, 4), admitted=seconds)
        short = waiting("short", 60, workers(4, 4, 4))
        return isinstance(decided(long, short, slots={"a": 4}).get("long"), Evict)

    assert stopped(MIN_RUN_SECONDS + 1)
    assert not stopped(MIN_RUN_SECONDS - 1)


def test_a_job_keeps_its_size_when_one_of_its_nodes_accepts_no_pods_for_now() -> None:
    assert not decided(running("job", "aazz", 10_000), slots={"a": 2})


def test_a_job_grows_beside_what_it_has_on_a_node_that_accepts_no_pods_for_now() -> None:
    assert sizes(decided(running("job", "azz", 10_000), slots={"a": 2})) == {"job": 4}


def test_a_job_shrinks_for_others_by_what_is_of_use_to_them() -> None:
    job = running("job", "aaazzaa", 1e6, demand=workers(1, 7, 7))

    found = decided(job, waiting("short", 60, workers(4, 4, 4)), slots={"a": 5})["job"]

    assert isinstance(found, Resize)
    assert found.nodes == {Replica(WORKER, 0): "a", Replica(WORKER, 3): "z", Replica(WORKER, 4): "z"}


def test_what_a_job_has_on_a_node_that_accepts_no_pods_for_now_does_not_keep_others_from_what_is_free() -> None:
    job = running("job", "az", 10_000, demand=workers(2, 2, 2))

    assert sizes(decided(job, waiting("other", 60, workers(1, 1, 1)), slots={"a": 1, "b": 1})) == {"other": 1}


@pytest.mark.parametrize("since", [10, 1000])
def test_a_job_of_which_more_is_requested_takes_only_what_it_lacks(since: float) -> None:
    job = running("job", "aa", 10_000, demand=workers(3, 3, 3), admitted=since)
    job = replace(job, resizes_by_restart=True, last_requested={WORKER: 2})

    assert sizes(decided(job, slots={"a": 3})) == {"job": 3}


def test_a_job_is_not_stopped_because_there_is_too_little_for_what_it_lacks() -> None:
    job = running("job", "aa", 10_000, demand=workers(4, 4, 4))
    job = replace(job, resizes_by_restart=True, last_requested={WORKER: 2})

    assert not decided(job, waiting("other", 60, workers(2, 2, 2)), slots={"a": 3})


def test_a_rigid_job_is_not_stopped_for_others_of_its_priority() -> None:
    rigid = running("rigid", "aaaa", 1e7, demand=workers(4, 4, 4))

    assert not decided(rigid, waiting("short", 60, workers(4, 4, 4)), slots={"a": 4})


def test_an_urgent_job_preempts_where_what_it_should_have_is_free_on_several_nodes() -> None:
    young = running("young", "aa", 1e4, demand=workers(1, 2, 2), admitted=10)
    rigid = replace(running("rigid", "bb", 1e4, demand=workers(2, 2, 2)), is_elastic=False)
    whole_node = replace(workers(1, 1, 1), resources={CPU: 4000})
    urgent = replace(waiting("urgent", 100, whole_node), priority=10)

    assert any(isinstance(each, Evict) for each in decided(young, rigid, urgent, slots={"a": 4, "b": 4}).values())


def test_a_starving_job_gets_what_a_moving_one_leaves_and_nobody_shrinks_for_it() -> None:
    moving = running("moving", "aa", 1e5, demand=workers(1, 4, 4))
    rigid = replace(running("rigid", "aa", 1e5, demand=workers(2, 2, 2)), is_elastic=False)
    other = running("other", "cccc", 1e3, demand=workers(1, 4, 4))
    starving = waiting("starving", 1e3, workers(2, 2, 2), since=1000)

    found = decided(moving, rigid, other, starving, slots={"a": 4, "b": 4, "c": 4})

    assert {name: set(each.nodes.values()) for name, each in found.items() if isinstance(each, Resize)} == {
        "moving": {"b"}
    }


def test_where_what_is_free_for_a_starving_job_is_in_too_many_places_another_one_shrinks() -> None:
    large = replace(workers(1, 1, 1), resources={CPU: 2000})

    def changed(since: float, *others: WaitingGang) -> Mapping[str, int]:
        holders = [running(name, name * 3, 1e4, demand=workers(1, 3, 3)) for name in ("a", "b")]
        return sizes(decided(*holders, waiting("starving", 1e3, large, since), *others, slots={"a": 4, "b": 4}))

    aged = SchedulingRules().starvation_seconds
    assert list(changed(aged + 1).values()) == [2]
    assert not changed(aged - 1)
    # One before it that should not start yet, and asks for the same, does not change that.
    assert list(changed(aged + 1, waiting("long", 1e9, large, aged + 2)).values()) == [2]


@pytest.mark.parametrize("rest", [1000, 1000.01])
def test_a_job_that_has_taken_a_dear_first_step_takes_cheaper_ones_before_an_equal_job_starts(rest: float) -> None:
    server = replace(workers(1, 1, 1), type=PS, resources={CPU: 6000}, is_anchor=True)
    jobs = [
        replace(waiting(name, work_left, server), demands=[server, workers(1, 4, 4)])
        for name, work_left in (("one", 1000), ("two", rest))
    ]

    assert sizes(decided(*jobs, slots={"a": 8, "b": 8})) == {"one": 5}


def servers(least: int, requested: int, cpus: int) -> Demand:
    return replace(workers(least, requested, requested), type=PS, resources={CPU: cpus * 1000}, is_anchor=True)


def test_a_job_starts_without_servers_that_it_does_not_need() -> None:
    job = waiting("job", 1000, workers(1, 4, 4))

    assert sizes(decided(replace(job, demands=[servers(0, 1, 4), workers(1, 4, 4)]), slots={"a": 4})) == {"job": 4}


def test_what_servers_hold_that_a_job_does_not_need_is_not_divided() -> None:
    """They are not given back: the other one could not start on what the workers hold."""
    job = running("job", "bbbb", 1e6, admitted=10, demand=workers(1, 4, 4))
    job = replace(job, demands=[servers(0, 4, 1), *job.demands])
    job = replace(job, nodes={**job.nodes, **{Replica(PS, index): "a" for index in range(4)}})

    assert not decided(job, waiting("short", 60, workers(4, 4, 4)), slots={"a": 4, "b": 4})


@pytest.mark.parametrize("by_restart", [False, True])
def test_a_job_of_which_more_servers_are_requested_gets_them(*, by_restart: bool) -> None:
    job = running("job", "aaa", 1e4, demand=workers(3, 3, 3) if by_restart else workers(1, 3, 3))
    job = replace(job, demands=[servers(2, 2, 1), *job.demands], nodes={**job.nodes, Replica(PS, 0): "a"})
    job = replace(job, resizes_by_restart=by_restart, last_requested={WORKER: 3, PS: 1})

    found = decided(job, slots={"a": 5})["job"]

    assert isinstance(found, Resize)
    assert found.nodes == {**job.nodes, Replica(PS, 1): "a"}


def test_equal_jobs_that_start_without_workers_start_together() -> None:
    launcher = replace(workers(1, 1, 1), type=LAUNCHER)
    jobs = [replace(waiting(name, 100, launcher), demands=[launcher, workers(0, 4, 4)]) for name in ("one", "two")]

    assert set(decided(*jobs, slots={"a": 8})) == {"one", "two"}


def test_the_oldest_overdue_job_gets_its_smallest_size_before_all_others() -> None:
    def started(since: float) -> bool:
        many = [waiting(f"short-{number:02}", 60, workers(1, 1, 1)) for number in range(40)]
        return "large" in decided(*many, waiting("large", 1e9, workers(16, 16, 16), since))

    overdue = SchedulingRules().overdue_seconds
    assert not started(overdue - 1)
    assert started(overdue + 1)


def test_the_oldest_overdue_job_goes_first_whatever_its_namespace_holds() -> None:
    rules, whole = SchedulingRules(is_fair_share=True), workers(4, 4, 4)
    holder = replace(running("holder", "bbbb", 1e9, demand=whole), queue="rich")
    oldest = replace(waiting("oldest", 1e9, whole, since=2 * rules.overdue_seconds), queue="rich")
    later = replace(waiting("later", 60, whole, since=rules.overdue_seconds + 1), queue="poor")

    assert set(decided_at(NOW, [holder, oldest, later], {"a": 4, "b": 4}, rules)) == {"oldest"}


def test_a_job_that_its_quota_permits_a_part_gets_what_another_one_leaves_of_it() -> None:
    rules = SchedulingRules(queues={"": QueueRules(quota={CPU: 7000})})
    cooling = replace(running("cooling", "aa", 1e4, demand=workers(1, 4, 4)), resized_at=ago(5))

    found = decided_at(NOW, [cooling, waiting("job", 1e5, workers(1, 6, 6))], dict.fromkeys(NODES, 4), rules)

    assert sizes(found) == {"job": 5}


def test_equal_jobs_are_one_group_also_after_a_cache_was_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_MAX_ENTRIES", 2)
    nodes = Inventory.of([NodeState(name="a", capacity={CPU: 4000}, free={CPU: 4000})])
    table, requests = CandidateTable(), RequestTable(nodes)
    first = table.of(waiting("first", 60, workers(1, 1, 1)), requests)

    for number in range(2, 6):
        table.of(waiting(f"other-{number}", 60, workers(number, number, number)), requests)

    assert table.of(waiting("second", 60, workers(1, 1, 1)), requests).group == first.group


def test_a_running_job_whose_queue_time_is_unknown_is_not_overdue() -> None:
    gangs = [replace(running("unknown", "a", 1e5), queued_at=None), running("known", "b", 1e5)]

    assert decided_at(NOW, gangs, dict.fromkeys(NODES, 4), SchedulingRules(overdue_seconds=0.0))


@pytest.mark.parametrize("seed", range(20))
def test_jobs_of_which_nothing_changes_are_resized_a_bounded_number_of_times(seed: int) -> None:
    """Each decision is carried out at once, and the policy asked again every second for ten minutes."""
    dice = random.Random(seed)
    gangs: dict[str, RunningGang | WaitingGang] = {}
    for number in range(dice.randint(2, 7)):
        requested = dice.randint(1, 6)
        demand = workers(dice.randint(1, requested), requested, dice.randint(requested, 8))
        gangs[f"job-{number}"] = waiting(f"job-{number}", dice.uniform(100, 1e5), demand)
    changes = Counter[str]()

    for second in range(600):
        now = NOW + dt.timedelta(seconds=second)
        for name, decision in decided_at(now, gangs.values(), dict.fromkeys(NODES, 4)).items():
            before = gangs[name]
            changes[name] += isinstance(before, RunningGang)
            if isinstance(decision, Evict):
                gangs[name] = WaitingGang(name=name, queued_at=NOW, demands=before.demands, work=before.work)
            elif isinstance(decision, Admit | Resize):
                gangs[name] = RunningGang(
                    name=name,
                    demands=before.demands,
                    nodes=decision.nodes,
                    is_elastic=True,
                    queued_at=NOW,
                    admitted_at=before.admitted_at if isinstance(before, RunningGang) else now,
                    resized_at=now if isinstance(before, RunningGang) else None,
                    last_requested={WORKER: before.demands[0].requested},
                    work=before.work,
                )

    assert max(changes.values(), default=0) <= 4
