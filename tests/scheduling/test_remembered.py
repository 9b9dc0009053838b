"""What is kept from round to round changes no decision: it is held against a policy that has never seen anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.base.resources import CPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.scheduling.api.decision import NEVER_FITS, NODES_UNAVAILABLE, Admit, Decision, Defer
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state import request_table
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.memory import Memory, Policy
from tests.scheduling.rounds import Job, gpus
from tests.scheduling.scenes import STANDARD, every_policy, scene
from tests.scheduling.test_policies import JOBS, NODES, RULES, job_of

G = TypeVar("G", WaitingGang, RunningGang)


@dataclass(slots=True)
class Remembering:
    """A policy that is shown the same nodes and gangs again, as they are kept from round to round, and decides as if it
    had never seen any of them.
    """

    policy: Policy
    nodes: Inventory = field(default_factory=lambda: Inventory.of([]))
    waiting: dict[str, WaitingGang] = field(default_factory=dict)
    running: dict[str, RunningGang] = field(default_factory=dict)

    def __call__(self, snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
        fresh = list(snapshot.nodes)
        if [state.name for state in fresh] == list(self.nodes.names):
            self.nodes = self.nodes.with_states(
                new for new, old in zip(fresh, self.nodes.states, strict=True) if new != old
            )
        else:
            self.nodes = Inventory.of(fresh)
        self.waiting = {gang.name: _kept(gang, self.waiting.get(gang.name)) for gang in snapshot.waiting}
        self.running = {gang.name: _kept(gang, self.running.get(gang.name)) for gang in snapshot.running}
        seen = replace(
            snapshot, nodes=self.nodes, waiting=list(self.waiting.values()), running=list(self.running.values())
        )
        decisions = self.policy(seen, memory)
        assert decisions == self.policy(seen, memory) == self.policy(seen, Memory()) == self.policy(snapshot, Memory())
        return decisions


def _kept(gang: G, before: G | None) -> G:
    return before if before is not None and before == gang else gang


@every_policy
@settings(max_examples=8, deadline=None)
@given(nodes=NODES, jobs=JOBS, grace=st.sampled_from([0, 7]), rules=st.sampled_from([STANDARD, RULES]))
def test_what_is_remembered_of_the_rounds_before_changes_no_decision(
    name: str, nodes: list[int], jobs: list[dict[str, int]], grace: int, rules: SchedulingRules
) -> None:
    rounds = scene(name, *nodes, rules=rules, grace=grace)
    rounds.policy = Remembering(POLICIES[name])

    for number, facts in enumerate(jobs):
        rounds.submit(job_of(rounds, f"job{number}", facts))
        rounds.advance(facts["after"])
    rounds.advance(200)


@every_policy
def test_who_never_fits_does_once_a_node_is_larger_and_is_told_of_nodes_that_are_away(name: str) -> None:
    rounds = scene(name, 4)
    rounds.submit(Job(name="large", demands=[rounds.workers(8)]))
    seen, policy, memory = rounds.snapshot(), POLICIES[name], Memory()
    small = Inventory.of(seen.nodes)
    state = small.states[0]
    away = replace(state, unavailable_reason="is not ready")
    large = small.with_states([replace(state, capacity=gpus(8), free=gpus(8))])

    def said(nodes: Inventory, *others: NodeState) -> list[str]:
        decisions = policy(replace(seen, nodes=nodes, unavailable_nodes=list(others)), memory)
        return [
            type(one).__name__ if isinstance(one, Admit) else one.code
            for one in decisions
            if isinstance(one, Admit | Defer)
        ]

    assert said(small) == [NEVER_FITS]
    assert said(small, away) == [NODES_UNAVAILABLE]
    assert said(small) == [NEVER_FITS]
    assert said(large) == ["Admit"]
    assert said(large.with_states([state])) == [NEVER_FITS]


@every_policy
def test_absurd_times_mean_never(name: str) -> None:
    rounds = scene(
        name,
        4,
        4,
        rules=SchedulingRules(starvation_seconds=1e12, overdue_seconds=1e12, idle_seconds=1e12, cool_down_seconds=1e12),
    )
    rounds.submit(Job(name="small", demands=[rounds.workers(2, least=1, most=4)], length=100))
    rounds.submit(Job(name="large", demands=[rounds.workers(8)], length=100))

    rounds.advance(250)

    assert sorted(rounds.ended) == ["large", "small"]


def test_all_is_forgotten_once_too_many_different_requests_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_table, "_MAX_REQUESTS", 4)
    nodes = Inventory.of([NodeState(name="a", capacity={CPU: 8000}, free={CPU: 8000})])
    memory = Memory()

    def ask(cpus: int) -> None:
        wanted = Demand(
            type=WORKER, resources={CPU: cpus * 1000}, minimum=1, requested=1, eligible_nodes=frozenset({"a"})
        )
        memory.of(nodes, ()).requests.of(wanted)

    ask(1)
    first = memory.of(nodes, ())
    ask(2)
    assert memory.of(nodes, ()) is first

    ask(3)
    assert memory.of(nodes, ()) is not first
