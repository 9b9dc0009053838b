"""Which anchor pods are created and deleted, whatever happens to nodes, jobs, pods and operators."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tarragon.kube.meta import Key
from tarragon.plan.lifecycle.gpu_anchors import (
    MAX_PAUSE,
    Anchor,
    AnchorActions,
    AnchorNeeds,
    AnchorRetry,
    AnchorState,
    decide_anchors,
    note_failures,
    usable_anchors,
)
from tarragon.plan.objects.gpu_anchors import anchor_name

START = dt.datetime(2026, 11, 26, tzinfo=dt.UTC)
STARTING, RUNNING, FAILED, LEAVING = (
    AnchorState.STARTING,
    AnchorState.RUNNING,
    AnchorState.FAILED,
    AnchorState.LEAVING,
)


def an_anchor(place: str = "n/0", *, uid: str = "", **fields: Any) -> Anchor:
    anchor = Anchor(
        key=Key("s", uid or anchor_name(place)),
        uid=uid or f"uid-{place}",
        resource_version="1",
        place=place,
        state=RUNNING,
        created_at=START,
        gpu="GPU-a",
    )
    return replace(anchor, **fields)


def needs(
    *places: str,
    only_kept: AbstractSet[str] = frozenset(),
    anchors: AbstractSet[str] = frozenset(),
    in_use: Mapping[str, AbstractSet[str]] | None = None,
    nodes: AbstractSet[str] = frozenset({"n", "m"}),
) -> AnchorNeeds:
    return AnchorNeeds(nodes=nodes, kept={*places, *only_kept}, wanted={*places} - anchors, gpus_in_use=in_use or {})


def of(actions: AnchorActions) -> tuple[list[str], list[str], list[str], list[str]]:
    """The places of creates, and the UIDs of closes, reopens and deletes."""
    return (
        list(actions.creates),
        [end.anchor.uid for end in actions.closes],
        [anchor.uid for anchor in actions.reopens],
        [end.anchor.uid for end in actions.deletes],
    )


NOTHING: tuple[list[str], list[str], list[str], list[str]] = ([], [], [], [])


def test_places_without_an_anchor_get_one() -> None:
    assert of(decide_anchors(needs("n/1", "n/0"), [], {}, 0.0)) == (["n/0", "n/1"], [], [], [])


def test_an_admission_that_is_not_verified_keeps_an_anchor_and_gets_none() -> None:
    found = needs(only_kept={"n/0", "n/1"})

    assert of(decide_anchors(found, [an_anchor("n/0")], {}, 0.0)) == NOTHING


@pytest.mark.parametrize("state", [STARTING, RUNNING])
def test_an_anchor_that_nobody_needs_is_closed_and_then_deleted(state: AnchorState) -> None:
    anchor = an_anchor(state=state)

    assert of(decide_anchors(needs(), [anchor], {}, 0.0)) == ([], ["uid-n/0"], [], [])
    assert of(decide_anchors(needs(), [replace(anchor, is_closing=True)], {}, 0.0)) == ([], [], [], ["uid-n/0"])
    assert of(decide_anchors(needs(), [replace(anchor, state=LEAVING)], {}, 0.0)) == NOTHING


def test_before_a_certain_time_no_anchor_loses_its_gpu() -> None:
    anchors = [an_anchor("n/0", is_closing=True), an_anchor("n/1", state=FAILED, gpu="")]

    before = decide_anchors(needs(), anchors, {}, 1.0, takes_back_at=2.0)

    assert of(before) == ([], [], [], ["uid-n/1"])
    assert before.next_at == 2.0
    assert of(decide_anchors(needs(), anchors, {}, 2.0, takes_back_at=2.0)) == ([], [], [], ["uid-n/0", "uid-n/1"])


def test_an_anchor_that_is_needed_again_is_opened_again() -> None:
    anchor = an_anchor(is_closing=True)

    assert of(decide_anchors(needs("n/0", anchors={"n/0"}), [anchor], {}, 0.0)) == ([], [], ["uid-n/0"], [])


def test_the_next_anchor_waits_until_the_name_is_free() -> None:
    assert of(decide_anchors(needs("n/0"), [an_anchor(state=LEAVING)], {}, 0.0)) == NOTHING


def test_anchors_of_nodes_that_are_gone_go_although_they_are_needed() -> None:
    found = needs("n/0", nodes={"m"})

    assert of(decide_anchors(found, [an_anchor()], {}, 0.0)) == ([], ["uid-n/0"], [], [])
    assert of(decide_anchors(found, [], {}, 0.0)) == NOTHING


def test_a_failed_anchor_is_looked_at_until_the_next_attempt_which_comes_later_each_time() -> None:
    found, now = needs("n/0"), 0.0
    retries: dict[str, AnchorRetry] = {}
    pauses = []
    for number in range(10):
        failed = [an_anchor(state=FAILED, gpu="", uid=f"uid-{number}")]
        retries = note_failures(found, failed, retries, now)
        decision = decide_anchors(found, failed, retries, now)
        assert of(decision) == NOTHING
        assert decision.next_at is not None
        pauses.append(decision.next_at - now)
        now = decision.next_at
        assert of(decide_anchors(found, failed, retries, now)) == ([], [], [], [f"uid-{number}"])
        retries = note_failures(found, [], retries, now)
        assert of(decide_anchors(found, [], retries, now)) == (["n/0"], [], [], [])

    assert pauses[:3] == [2.0, 4.0, 8.0]
    assert pauses[-1] == MAX_PAUSE
    ready = note_failures(found, [an_anchor()], retries, now)
    assert ready == {}


def test_a_failed_anchor_that_nobody_needs_goes_at_once() -> None:
    failed = [an_anchor(state=FAILED)]

    assert of(decide_anchors(needs(), failed, note_failures(needs(), failed, {}, 0.0), 0.0)) == (
        [],
        [],
        [],
        ["uid-n/0"],
    )


@pytest.mark.parametrize("second", ["n/1", "n/0"])
def test_of_two_with_one_gpu_or_one_place_the_older_one_is_right_unless_the_other_is_in_use(second: str) -> None:
    older, newer = (
        an_anchor("n/0", uid="older", created_at=START - dt.timedelta(seconds=9)),
        an_anchor(second, uid="newer"),
    )
    found = needs("n/0", second, anchors={"n/0", second})
    used = needs("n/0", second, anchors={"n/0", second}, in_use={second: {"GPU-a"}} if second != "n/0" else {})

    assert of(decide_anchors(found, [newer, older], {}, 0.0)) == ([], ["newer"], [], [])
    expected = ["older"] if second != "n/0" else ["newer"]
    assert of(decide_anchors(used, [newer, older], {}, 0.0)) == ([], expected, [], [])


def test_the_same_gpu_on_another_node_is_another_one() -> None:
    both = [an_anchor("n/0"), an_anchor("m/0")]

    assert of(decide_anchors(needs("n/0", "m/0", anchors={"n/0", "m/0"}), both, {}, 0.0)) == NOTHING


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("n", "tarragon-gpu-n-3"),
        ("ip-10-0-0-1.eu-west-1.compute.internal", "tarragon-gpu-ip-10-0-0-1.eu-west-1.compute.internal-3"),
    ],
)
def test_the_name_of_an_anchor_is_that_of_its_place(node: str, name: str) -> None:
    assert anchor_name(f"{node}/3") == name


def test_names_of_anchors_are_different_and_short() -> None:
    nodes = [f"{'a' * 40}.{'b' * 40}.{end}" for end in ("c", "d")]
    names = [anchor_name(f"{node}/{number}") for node in nodes for number in (1, 11)]

    assert len(set(names)) == 4
    assert all(len(name) <= 63 and ".-" not in name for name in names)


# ------------------------------------------------------------------------------------------------- whatever may happen


PLACE, GPUS = "n/0", ("GPU-0", "GPU-1")
"""One place is enough, and what can go wrong there is found sooner. Its anchors may get one GPU or the other."""


@dataclass(frozen=True)
class Request:
    """A write that is under way, with the anchor as it was when it was decided."""

    verb: str
    anchor: Anchor | None = None


@dataclass
class State:
    """What is in the cluster."""

    anchor: Anchor | None = None
    pods: dict[int, str] = field(default_factory=dict)
    """The GPU of each."""
    is_admitted: bool = False


class Cluster(RuleBasedStateMachine):
    """A cluster with an operator, whose cache is behind, and whose writes may take effect late, or after its death."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.count = 0
        self.state = State(is_admitted=True)
        self.cache = State()
        self.assumed: dict[int, str] = {}
        self.retries: dict[str, AnchorRetry] = {}
        self.under_way: list[Request] = []
        self.anchor_of: dict[int, str] = {}
        """The UID of the anchor because of which a pod was created."""
        self.ended_by_others: set[str] = set()
        """The UIDs of anchors."""
        self.all_goes_well()

    # --------------------------------------------------------------------------------------------------- the operator

    @rule(is_current=st.booleans(), is_answered=st.booleans())
    def operator_works(self, is_current: bool, is_answered: bool) -> None:  # noqa: FBT001
        if is_current:
            self.cache, self.assumed = replace(self.state, pods=dict(self.state.pods)), {}
        anchors = [] if self.cache.anchor is None else [self.cache.anchor]
        usable, _ = usable_anchors(anchors, self._in_use())
        anchor = usable.get(PLACE)
        if self.cache.is_admitted and anchor is not None and anchor.gpu and not anchor.is_closing:
            self.count += 1
            self.assumed[self.count] = self.state.pods[self.count] = anchor.gpu
            self.anchor_of[self.count] = anchor.uid
        earlier = len(self.under_way)
        self._decide(anchors)
        while is_answered and len(self.under_way) > earlier:
            self.a_request_arrives(earlier)

    @rule(number=st.integers(0, 1))
    def a_request_arrives(self, number: int) -> None:
        if number < len(self.under_way):
            self._perform(self.under_way.pop(number))

    # ---------------------------------------------------------------------------------------------------- the cluster

    @rule(is_answered=st.booleans())
    def a_job_comes_or_goes(self, is_answered: bool) -> None:  # noqa: FBT001
        self.state.is_admitted = not self.state.is_admitted
        if not self.state.is_admitted:
            self.state.pods = {}
        self.operator_works(is_current=True, is_answered=is_answered)

    @rule()
    def the_kubelet_works(self) -> None:
        anchor = self.state.anchor
        if anchor is not None and anchor.state is LEAVING:
            self.state.anchor = None
        if anchor is not None and anchor.state is STARTING:
            self._change(anchor, state=RUNNING, gpu=GPUS[self.count % 2])

    @rule(kind=st.sampled_from(["dies", "time", "evicted", "deleted", "rejected", "preempted"]))
    def there_is_trouble(self, kind: str) -> None:
        anchor = self.state.anchor
        if kind == "dies":
            self.retries = {}
            self.operator_works(is_current=True, is_answered=False)
        elif kind == "time":
            self.now += MAX_PAUSE
        elif kind == "preempted":
            self.state.is_admitted = False  # and the pods have a grace period
        elif anchor is not None and anchor.state is (STARTING if kind == "rejected" else RUNNING):
            self.ended_by_others.add(anchor.uid)
            self._change(anchor, state=LEAVING if kind == "deleted" else FAILED)

    @rule()
    def all_goes_well(self) -> None:
        self.now += MAX_PAUSE
        self.operator_works(is_current=True, is_answered=True)
        self.the_kubelet_works()

    # ------------------------------------------------------------------------------------------------- what must hold

    @invariant()
    def gpus_of_pods_are_held(self) -> None:
        if hasattr(self, "state"):
            anchor = self.state.anchor
            held = "" if anchor is None or anchor.state is not RUNNING else anchor.gpu
            unheld = {pod for pod, gpu in self.state.pods.items() if gpu != held}
            assert {self.anchor_of[pod] for pod in unheld} <= self.ended_by_others

    def teardown(self) -> None:
        if hasattr(self, "state"):
            while self.under_way:
                self.a_request_arrives(0)
            for _ in range(12):
                self.all_goes_well()
            anchor = self.state.anchor
            is_held = anchor is not None and anchor.state is RUNNING and not anchor.is_closing
            assert is_held == (self.state.is_admitted or bool(self.state.pods))
            self.state.is_admitted, self.state.pods = False, {}
            for _ in range(12):
                self.all_goes_well()
            assert self.state.anchor is None

    # ---------------------------------------------------------------------------------------------------------- helpers

    def is_closing(self) -> bool:
        return self.state.anchor is not None and self.state.anchor.is_closing

    def _decide(self, anchors: list[Anchor]) -> None:
        in_use = self._in_use()
        kept = in_use.keys() | ({PLACE} if self.cache.is_admitted else set())
        found = AnchorNeeds(nodes={"n"}, kept=kept, wanted=set() if anchors else kept, gpus_in_use=in_use)
        self.retries = note_failures(found, anchors, self.retries, self.now)
        actions = decide_anchors(found, anchors, self.retries, self.now)
        self.under_way += [Request("create") for _ in actions.creates]
        self.under_way += [Request("close", end.anchor) for end in actions.closes]
        self.under_way += [Request("reopen", anchor) for anchor in actions.reopens]
        self.under_way += [Request("delete", end.anchor) for end in actions.deletes]

    def _in_use(self) -> dict[str, set[str]]:
        gpus = {*self.cache.pods.values(), *self.assumed.values()}
        return {PLACE: gpus} if gpus else {}

    def _perform(self, request: Request) -> None:
        found, meant = self.state.anchor, request.anchor
        if meant is None:
            if found is None:
                self.count += 1
                self.state.anchor = an_anchor(state=STARTING, gpu="", uid=f"uid-{self.count}")
        elif found is None or found.uid != meant.uid or found.state is LEAVING:
            return
        elif request.verb in {"close", "reopen"}:
            self._change(found, is_closing=request.verb == "close")
        elif found.resource_version == meant.resource_version:
            if found.state is FAILED:
                self.state.anchor = None
            else:
                self._change(found, state=LEAVING)

    def _change(self, anchor: Anchor, **changes: Any) -> None:
        self.count += 1
        self.state.anchor = replace(anchor, **changes, resource_version=str(self.count))


Cluster.TestCase.settings = settings(max_examples=500, stateful_step_count=30, deadline=None)
TestCluster = Cluster.TestCase


@pytest.mark.parametrize("dies", [False, True])
def test_a_delete_that_comes_late_does_not_hold_for_an_anchor_that_is_needed_again(dies: bool) -> None:  # noqa: FBT001
    cluster = Cluster()
    cluster.begin()
    cluster.a_job_comes_or_goes(is_answered=True)
    assert cluster.is_closing()
    cluster.operator_works(is_current=True, is_answered=False)
    assert [request.verb for request in cluster.under_way] == ["delete"]
    if dies:
        cluster.there_is_trouble("dies")
    cluster.a_job_comes_or_goes(is_answered=True)
    assert not cluster.is_closing()
    cluster.operator_works(is_current=True, is_answered=True)
    assert cluster.state.pods

    while cluster.under_way:
        cluster.a_request_arrives(0)
    cluster.gpus_of_pods_are_held()
    cluster.teardown()
