from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.kubelet.base.pod_lifecycle import (
    Backoff,
    ContainerActions,
    DesiredState,
    ExitStatus,
    ProbeStatus,
    Run,
    RuntimeStatus,
    StartFailure,
    compute_actions,
    is_complete,
    next_backoff,
    pending_init_containers,
    phase,
)
from tarragon.localcluster.kubelet.base.spec import PodSpec
from tests.localcluster.kubelet.builders import container_json, pod

NOW = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
UNSTARTED = RuntimeStatus()
STARTING = RuntimeStatus(run=Run(number=0, identity="x"))
RUNNING = RuntimeStatus(run=Run(number=0, identity="x", started=NOW))


def after(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def ended(code: int, *, ago: float = 0, number: int = 0, backoff: Backoff | None = None) -> RuntimeStatus:
    outcome = ExitStatus(code=code, finished=after(-ago), started=after(-ago))
    run = Run(number=number, identity="x", started=after(-ago), outcome=outcome)
    return RuntimeStatus(run=run, ended=after(-ago), backoff=backoff)


def spec(*names: str, inits: tuple[str, ...] = (), policy: str = "Never") -> PodSpec:
    """An init container whose name ends with `*` is a sidecar."""
    first = [
        container_json(name=name.rstrip("*"), **({"restartPolicy": "Always"} if name.endswith("*") else {}))
        for name in inits
    ]
    mains = [container_json(name=name) for name in names]
    return pod("p", *mains, initContainers=first, restartPolicy=policy).spec


def orders(spec: PodSpec, course: DesiredState = DesiredState.RUN, **lives: RuntimeStatus) -> ContainerActions:
    return compute_actions(spec, lives, course, NOW)


def test_all_main_containers_start_at_once() -> None:
    assert orders(spec("a", "b"), a=UNSTARTED, b=UNSTARTED).start == ("a", "b")


def test_running_containers_are_left_alone() -> None:
    assert orders(spec("a", "b"), a=RUNNING, b=STARTING) == ContainerActions()


def test_init_containers_run_one_by_one_before_the_main_containers() -> None:
    described = spec("main", inits=("one", "two"))

    assert orders(described, one=UNSTARTED, two=UNSTARTED, main=UNSTARTED).start == ("one",)
    assert orders(described, one=RUNNING, two=UNSTARTED, main=UNSTARTED).start == ()
    assert orders(described, one=ended(0), two=UNSTARTED, main=UNSTARTED).start == ("two",)
    assert orders(described, one=ended(0), two=ended(0), main=UNSTARTED).start == ("main",)


def test_later_containers_wait_for_a_post_start_hook() -> None:
    hook = {"postStart": {"exec": {"command": ["x"]}}}
    described = pod("p", container_json(name="a", lifecycle=hook), container_json(name="b")).spec
    hooking = replace(RUNNING, fitness=ProbeStatus(is_hooked=False))

    assert orders(described, a=UNSTARTED, b=UNSTARTED).start == ("a",)
    assert orders(described, a=hooking, b=UNSTARTED).start == ()
    assert orders(described, a=RUNNING, b=UNSTARTED).start == ("b",)
    assert phase(described, {"a": hooking, "b": UNSTARTED}, DesiredState.RUN) == "Pending"


def test_the_next_container_waits_for_the_first_start_of_a_sidecar_only() -> None:
    described = spec("main", inits=("side*", "init"))
    slow = replace(RUNNING, fitness=ProbeStatus(is_up=False))

    assert orders(described, side=slow, init=UNSTARTED, main=UNSTARTED).start == ()
    assert orders(described, side=ended(0), init=UNSTARTED, main=UNSTARTED).start == ("side",)
    assert orders(described, side=RUNNING, init=UNSTARTED, main=UNSTARTED).start == ("init",)
    assert orders(described, side=slow, init=ended(0), main=UNSTARTED).start == ("main",)
    assert pending_init_containers(described, {"side": slow, "init": RUNNING, "main": UNSTARTED}) == ("init",)


def test_sidecars_stop_after_all_others_in_reverse_order() -> None:
    described = spec("a", "b", inits=("one*", "two*"))
    both: dict[str, Any] = {"one": RUNNING, "two": RUNNING}

    first = orders(described, DesiredState.STOP, a=RUNNING, b=ended(0), **both)
    assert (first.stop, first.stop_later) == (("a",), ("one", "two"))
    then = orders(described, a=ended(0), b=ended(0), **both)
    assert (then.stop, then.stop_later) == (("two",), ("one",))
    assert orders(described, a=ended(0), b=ended(0), one=RUNNING, two=ended(143)).stop == ("one",)


def test_a_container_that_a_probe_failed_is_stopped_and_restarted_by_policy() -> None:
    unfit = ProbeStatus(unfit="liveness probe")

    assert orders(spec("a", "b"), a=replace(RUNNING, fitness=unfit), b=RUNNING).stop == ("a",)
    for policy, restarted in (("Always", ("a",)), ("OnFailure", ("a",)), ("Never", ())):
        assert orders(spec("a", policy=policy), a=replace(ended(0), fitness=unfit)).start == restarted
    failed_hook = replace(ended(0), fitness=ProbeStatus(is_hooked=False, unfit="FailedPostStartHook"))
    assert is_complete(spec("a", policy="OnFailure"), {"a": failed_hook})


def test_a_failed_init_container_ends_a_pod_that_never_restarts() -> None:
    described = spec("main", inits=("one",))
    lives = {"one": ended(1), "main": UNSTARTED}

    assert compute_actions(described, lives, DesiredState.RUN, NOW) == ContainerActions()
    assert phase(described, lives, DesiredState.RUN) == "Failed"


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_failed_init_container_is_restarted_under_other_policies(policy: str) -> None:
    assert orders(spec("main", inits=("one",), policy=policy), one=ended(1), main=UNSTARTED).start == ("one",)


def test_a_succeeded_init_container_is_not_restarted() -> None:
    assert orders(spec("main", inits=("one",), policy="Always"), one=ended(0), main=ended(0)).start == ("main",)


def test_a_sidecar_stays_until_the_main_containers_have_ended() -> None:
    described = spec("main", inits=("side*", "init"))

    assert orders(described, side=UNSTARTED, init=UNSTARTED, main=UNSTARTED).start == ("side",)
    assert orders(described, side=STARTING, init=UNSTARTED, main=UNSTARTED).start == ()
    assert orders(described, side=RUNNING, init=UNSTARTED, main=UNSTARTED).start == ("init",)
    assert orders(described, side=RUNNING, init=ended(0), main=UNSTARTED).start == ("main",)
    assert orders(described, side=ended(1), init=ended(0), main=RUNNING).start == ("side",)
    assert orders(described, side=RUNNING, init=ended(0), main=ended(0)).stop == ("side",)
    assert phase(described, {"side": ended(143), "init": ended(0), "main": ended(0)}, DesiredState.RUN) == "Succeeded"


@pytest.mark.parametrize(
    ("policy", "code", "restarted"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_the_restart_policy_is_applied(policy: str, code: int, restarted: bool) -> None:  # noqa: FBT001 - a table
    assert orders(spec("a", policy=policy), a=ended(code)).start == (("a",) if restarted else ())


def test_the_first_restart_is_immediate_and_the_back_off_doubles() -> None:
    described = spec("a", policy="OnFailure")
    life, pauses = ended(1), []

    for number in range(1, 9):
        due = compute_actions(described, {"a": life}, DesiredState.RUN, NOW).wake
        pauses.append((due - NOW).total_seconds() if due else 0.0)
        life = ended(1, number=number, backoff=next_backoff(life, NOW))

    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_back_off_ends_on_time() -> None:
    described = spec("a", policy="Always")
    life = ended(1, ago=10, backoff=Backoff(20, after(-30)))

    assert compute_actions(described, {"a": life}, DesiredState.RUN, after(9.9)) == ContainerActions(wake=after(10))
    assert compute_actions(described, {"a": life}, DesiredState.RUN, after(10)).start == ("a",)


def test_a_clock_set_back_does_not_prolong_a_back_off() -> None:
    crashed = ended(1, backoff=Backoff(20, after(-30)))
    lacking = RuntimeStatus(start_failure=StartFailure(reason="CannotStart", message="x", since=NOW, until=after(5)))

    for life in (crashed, lacking):
        assert compute_actions(spec("a", policy="Always"), {"a": life}, DesiredState.RUN, after(-3600)).start == ("a",)


def test_the_back_off_is_reset_after_a_run_of_ten_minutes() -> None:
    life = ended(1, backoff=Backoff(300, after(-601)))

    assert orders(spec("a", policy="Always"), a=life).start == ("a",)
    assert next_backoff(life, NOW) == Backoff(10, NOW)


def test_a_container_that_could_not_start_is_retried_on_time() -> None:
    trouble = StartFailure(reason="CreateContainerConfigError", message="x", since=NOW, until=after(5))
    lives = {"a": RuntimeStatus(start_failure=trouble)}

    assert compute_actions(spec("a"), lives, DesiredState.RUN, NOW) == ContainerActions(wake=after(5))
    assert compute_actions(spec("a"), lives, DesiredState.RUN, after(5)).start == ("a",)


def test_a_stopping_pod_starts_no_container_and_stops_all() -> None:
    described = spec("a", "b", "c", policy="Always")

    assert orders(described, DesiredState.STOP, a=RUNNING, b=STARTING, c=UNSTARTED) == ContainerActions(stop=("a", "b"))
    assert orders(described, DesiredState.STOP, a=ended(1), b=ended(0), c=UNSTARTED) == ContainerActions()


@pytest.mark.parametrize(
    ("policy", "codes", "expected"),
    [
        ("Never", (0, 0), "Succeeded"),
        ("Never", (0, 1), "Failed"),
        ("Never", (0, None), "Running"),
        ("Never", (1, None), "Running"),
        ("OnFailure", (0, 0), "Succeeded"),
        ("OnFailure", (0, 1), "Running"),
        ("Always", (0, 0), "Running"),
        ("Always", (1, None), "Running"),
    ],
)
def test_the_phase_is_that_of_a_kubelet(policy: str, codes: tuple[int | None, ...], expected: str) -> None:
    lives = {name: RUNNING if code is None else ended(code) for name, code in zip("ab", codes, strict=True)}

    assert phase(spec("a", "b", policy=policy), lives, DesiredState.RUN) == expected


def test_a_pod_is_pending_until_all_its_containers_have_started_once() -> None:
    assert phase(spec("a", "b"), {"a": RUNNING, "b": STARTING}, DesiredState.RUN) == "Pending"
    assert phase(spec("a", "b"), {"a": RUNNING, "b": UNSTARTED}, DesiredState.RUN) == "Pending"
    assert phase(spec("a", inits=("i",)), {"i": RUNNING, "a": UNSTARTED}, DesiredState.RUN) == "Pending"


def test_a_stopping_pod_gets_its_final_phase_when_all_containers_have_ended() -> None:
    described = spec("a", "b", policy="Always")

    assert phase(described, {"a": RUNNING, "b": ended(0)}, DesiredState.STOP) == "Running"
    assert phase(described, {"a": ended(0), "b": ended(0)}, DesiredState.STOP) == "Succeeded"
    assert phase(described, {"a": ended(143), "b": ended(0)}, DesiredState.STOP) == "Failed"
    assert phase(described, {"a": UNSTARTED, "b": UNSTARTED}, DesiredState.STOP) == "Failed"


LIVES: Any = st.one_of(
    st.just(UNSTARTED),
    st.just(STARTING),
    st.just(RUNNING),
    st.builds(ended, st.integers(0, 2), ago=st.floats(0, 700), number=st.integers(0, 3)),
)
PODS = st.builds(
    spec,
    st.just("a"),
    st.just("b"),
    inits=st.sampled_from([(), ("i",), ("s*", "i"), ("i", "s*")]),
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
)


@given(PODS, st.lists(LIVES, min_size=4, max_size=4), st.sampled_from(DesiredState))
def test_only_stopped_containers_are_started_and_only_live_ones_stopped(
    described: PodSpec, lives: list[RuntimeStatus], course: DesiredState
) -> None:
    known = dict(zip(["a", "b", "i", "s"], lives, strict=True))

    orders = compute_actions(described, known, course, NOW)

    assert not any(known[name].is_alive for name in orders.start)
    assert all(known[name].is_alive for name in orders.stop)
    assert not (orders.start and orders.stop)


@given(PODS, st.lists(LIVES, min_size=4, max_size=4))
def test_an_active_pod_always_has_an_action_a_live_container_or_a_timer(
    described: PodSpec, lives: list[RuntimeStatus]
) -> None:
    """No pod hangs: whatever its containers did, it is over, has an action, or waits for a container or a timer."""
    names = [each.name for each in described.all_containers]
    known = dict(zip(["a", "b", "i", "s"], lives, strict=True))
    mine = {name: known[name] for name in names}

    told = compute_actions(described, mine, DesiredState.RUN, NOW)

    moves = told.start or told.stop or told.wake or any(life.is_alive for life in mine.values())
    assert moves or is_complete(described, mine)
    final = phase(described, mine, DesiredState.RUN) in {"Succeeded", "Failed"}
    assert final is (is_complete(described, mine) and not any(life.is_alive for life in mine.values()))
