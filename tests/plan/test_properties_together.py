"""Whatever happens to gangs that are made anew as one, and to jobs whose edits make no sense: what must never be."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.annotations import RESIZE_ANNOTATION, RESTART_ANNOTATION
from tarragon.job.model import RestartPolicy
from tarragon.plan.objects.gang_round import ROUND_ANNOTATION
from tests.plan.test_properties import (
    Action,
    Ghost,
    at_rest,
    is_suspended,
    on_pod,
    refuse,
    relent,
    suspend,
    total,
    withdraw,
)
from tests.plan.world import World, manifest

SLIP = {"tfReplicaSpecs": {"PS": {"replicas": "one"}}}
MENDED = {"tfReplicaSpecs": {"PS": {"replicas": 1}}}


def is_slipped(world: World) -> bool:
    return bool(world.job["spec"]["tfReplicaSpecs"]["PS"]["replicas"] != 1)


def slip(world: World) -> None:
    if not world.status.phase.is_final:
        world.edit(SLIP)


def mend(world: World) -> None:
    if is_slipped(world):
        world.edit(MENDED)


def schedule(world: World) -> None:
    """As the scheduler does: who waits gets its wish, who runs grows by leave only, and shrinks at once."""
    status = world.status
    if not world.tarragon or status.phase.is_final or is_suspended(world) or is_slipped(world):
        return
    wish = world.job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"]
    has = 0 if status.admission is None else status.admission.size.get(WORKER, 0)
    has_leave = (
        RESIZE_ANNOTATION in world.job["metadata"]["annotations"]
        and status.gang_round is not None
        and status.gang_round.size
    )
    if not status.is_admitted or wish <= has or (has_leave and not status.succeeded_replicas):
        world.admit(PS=1, Worker=wish)


def looked_at_and_scheduled(world: World) -> None:
    world.step()
    schedule(world)
    world.step()


def workers(number: int) -> Action:
    return lambda world: world.edit({"tfReplicaSpecs": {"Worker": {"replicas": number}}})


crashes: st.SearchStrategy[Action] = st.one_of(
    on_pod(lambda world, name: world.run(name), "Pending"),
    on_pod(lambda world, name: world.exit(name, 0), "Running"),
    on_pod(lambda world, name: world.exit(name, 1), "Running"),
    on_pod(lambda world, name: world.exit(name, 137), "Running"),
    on_pod(lambda world, name: world.disrupt(name), "Pending", "Running"),
    on_pod(lambda world, name: world.delete_pod(name), "Pending", "Running", "Failed", "Succeeded"),
    on_pod(lambda world, name: world.vanish(name), "Pending", "Running"),
    st.just(World.bury),
    st.just(lambda world: world.run()),
    st.just(schedule),
    st.just(looked_at_and_scheduled),
    st.just(withdraw),
    st.booleans().map(suspend),
    st.integers(1, 3).map(workers),
    st.integers(1, 30).map(refuse),
    st.just(relent),
    st.integers(1, 90).map(lambda seconds: lambda world: world.pass_time(seconds)),
    st.just(lambda world: world.step()),
    st.integers(0, 5).map(lambda writes: lambda world: world.step(writes)),
    st.just(lambda world: world.settle()),
)
slips: st.SearchStrategy[Action] = st.one_of(crashes, st.just(slip), st.just(mend))
lags: st.SearchStrategy[Action] = st.one_of(
    slips, st.integers(1, 8).map(lambda behind: lambda world: world.lagging_step(behind))
)
policies = st.sampled_from(RestartPolicy)
limits = st.fixed_dictionaries({}, optional={"backoffLimit": st.integers(0, 3), "cleanPodPolicy": st.just("Running")})


def start(annotation: dict[str, str], policy: RestartPolicy, run_policy: dict[str, Any]) -> World:
    body = manifest({"PS": 1, "Worker": 2}, policy=policy.value, run_policy=run_policy)
    body["metadata"]["annotations"] = annotation
    world = World(body)
    world.settle()
    schedule(world)
    world.settle()
    world.run()
    return world


def live(world: World) -> list[dict[str, Any]]:
    return [pod for pod in world.own_pods().values() if pod["status"]["phase"] in {"Pending", "Running"}]


def rounds(world: World) -> set[str]:
    return {pod["metadata"].get("annotations", {}).get(ROUND_ANNOTATION, "0") for pod in live(world)}


def all_there(world: World) -> None:
    """At rest a job that may run has every replica that has not finished, of one round, and each knows all others."""
    mend(world)
    schedule(world)
    at_rest(world)
    status = world.status
    if status.phase.is_final or is_suspended(world) or not status.is_admitted or status.admission is None:
        return
    wanted = {
        f"dist-{kind.lower()}-{index}" for kind, number in status.admission.size.items() for index in range(number)
    }
    done = {f"dist-{replica}" for replica in status.succeeded_replicas}
    assert wanted - done <= {pod["metadata"]["name"] for pod in live(world)} <= wanted
    assert len(rounds(world)) <= 1


def listed(pod: dict[str, Any]) -> int:
    env = pod["spec"]["containers"][0]["env"]
    config = json.loads(next(one["value"] for one in env if one["name"] == "TF_CONFIG"))
    return len(config["cluster"]["worker"])


@settings(max_examples=300)
@given(policies, limits, st.lists(crashes, min_size=10, max_size=40))
def test_no_moment_sees_half_a_gang_of_old_and_half_of_new_and_a_restart_of_all_is_one(
    policy: RestartPolicy, run_policy: dict[str, Any], story: list[Action]
) -> None:
    world = start({RESTART_ANNOTATION: "gang"}, policy, run_policy)
    ghost = Ghost()
    for act in story:
        act(world)
        ghost.look(world)
        assert len(rounds(world)) <= 1
        gang = world.status.gang_round
        assert total(world.status) <= (gang.number if gang is not None else 0) + world.status.phase.is_final
    all_there(world)
    ghost.look(world)


@settings(max_examples=300)
@given(
    st.sampled_from([RESTART_ANNOTATION, RESIZE_ANNOTATION]), policies, limits, st.lists(lags, min_size=10, max_size=40)
)
def test_with_slips_and_caches_that_lag_nothing_is_lost_and_ends_stay_ends(
    annotation: str, policy: RestartPolicy, run_policy: dict[str, Any], story: list[Action]
) -> None:
    world = start({annotation: "gang" if annotation == RESTART_ANNOTATION else "restart"}, policy, run_policy)
    ghost = Ghost()
    for act in story:
        act(world)
        ghost.look(world)
    all_there(world)
    ghost.look(world)

    for name, uids in world.ended_badly.items():
        record = world.status.restarts.get(world.replica(name))
        assert record is None or record.pod_restarts <= len(uids)


@settings(max_examples=300)
@given(policies, limits, st.lists(slips, min_size=10, max_size=40))
def test_nobody_runs_who_was_not_told_of_all_that_run(
    policy: RestartPolicy, run_policy: dict[str, Any], story: list[Action]
) -> None:
    world = start({RESIZE_ANNOTATION: "restart"}, policy, run_policy)
    for act in story:
        act(world)
        pods = [pod for pod in live(world) if "deletionTimestamp" not in pod["metadata"]]
        replicas = [world.replica(pod["metadata"]["name"]) for pod in pods]
        last = max((replica.index for replica in replicas if replica.type == WORKER), default=0)
        assert all(listed(pod) > last for pod in pods)
    all_there(world)
