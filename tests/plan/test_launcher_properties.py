"""Whatever happens to a launcher and its workers: their order holds, no end counts twice, and every story ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.annotations import RESTART_ANNOTATION
from tarragon.job.model import ReplicaType
from tarragon.job.phase import Phase
from tests.plan.launcher_world import LAUNCHER, WORKER_0, WORKER_1, LauncherWorld, launcher_job
from tests.plan.test_properties import Action, Ghost, is_suspended, refuse, relent, suspend, withdraw
from tests.plan.world import World

NAMES = (LAUNCHER, WORKER_0, WORKER_1)


def on(act: Any, *phases: str, names: tuple[str, ...] = NAMES) -> st.SearchStrategy[Any]:
    """Something that happens to a pod that is in one of these phases."""

    def happens(name: str) -> Action:
        def action(world: World) -> None:
            pod = world.pods.get(name)
            if pod is not None and pod["status"]["phase"] in phases:
                act(world, name)

        return action

    return st.sampled_from(names).map(happens)


def restart_in_place(world: World, name: str) -> None:
    before = world.pods[name]["status"]["containerStatuses"][0]["restartCount"]
    if world.pods[name]["spec"]["restartPolicy"] != "Never":
        world.restart_in_place(name, before + 1)


def admit(world: World) -> None:
    if world.tarragon and not world.status.phase.is_final and not is_suspended(world) and not world.status.is_admitted:
        world.admit()


def ready_workers(world: World) -> set[str]:
    pods = ((name, world.pods[name]) for name in (WORKER_0, WORKER_1) if name in world.pods)
    return {
        name
        for name, pod in pods
        if pod["status"]["phase"] == "Running"
        and all(each.get("ready") for each in pod["status"]["containerStatuses"])
        and "deletionTimestamp" not in pod["metadata"]
    }


def ordered_step(world: World) -> None:
    """The operator looks once. It creates a launcher only when all of its workers are ready."""
    before = world.created[LAUNCHER]
    needed = {WORKER_0, WORKER_1} - {f"dist-{replica}" for replica in world.status.succeeded_replicas}
    finished = {name for name in needed if name in world.pods and world.pods[name]["status"]["phase"] == "Succeeded"}
    there = ready_workers(world)
    world.step()
    assert world.created[LAUNCHER] == before or needed - finished <= there


events: st.SearchStrategy[Any] = st.one_of(
    on(lambda world, name: world.run_ready(name), "Pending"),
    on(lambda world, name: world.make_ready(name, ready=False), "Running"),
    on(lambda world, name: world.exit(name, 0), "Running", names=(LAUNCHER, WORKER_0)),
    on(lambda world, name: world.exit(name, 1), "Running"),
    on(lambda world, name: world.exit(name, 137), "Running"),
    on(restart_in_place, "Running"),
    on(lambda world, name: world.disrupt(name), "Pending", "Running"),
    on(lambda world, name: world.delete_pod(name), "Pending", "Running", "Failed", "Succeeded"),
    on(lambda world, name: world.vanish(name), "Pending", "Running"),
    st.just(World.bury),
    st.just(lambda world: world.run_ready()),
    st.just(admit),
    st.just(withdraw),
    st.booleans().map(suspend),
    st.integers(1, 30).map(refuse),
    st.just(relent),
    st.integers(1, 90).map(lambda seconds: lambda world: world.pass_time(seconds)),
)
orderly: st.SearchStrategy[Any] = st.one_of(events, st.just(ordered_step))
crashes: st.SearchStrategy[Any] = st.one_of(
    events,
    st.just(lambda world: world.step()),
    st.integers(0, 5).map(lambda writes: lambda world: world.step(writes)),
    st.integers(1, 8).map(lambda behind: lambda world: world.lagging_step(behind)),
    st.just(lambda world: world.settle()),
)
policies = st.sampled_from(["Never", "OnFailure"])
worker_policies = st.sampled_from(["Never", "OnFailure", "Always"])
limits = st.fixed_dictionaries({}, optional={"backoffLimit": st.integers(0, 3), "cleanPodPolicy": st.just("Running")})
job_annotations: st.SearchStrategy[dict[str, str]] = st.sampled_from([{}, {RESTART_ANNOTATION: "gang"}])


def begin(job: dict[str, Any], starts_after: ReplicaType | None) -> LauncherWorld:
    world = LauncherWorld(job, starts_after)
    world.settle()
    world.admit()
    world.settle()
    return world


def let_it_go_well(world: LauncherWorld) -> None:
    """Nothing happens any more but that pods start, and the launcher succeeds."""
    world.edit({"runPolicy": {"suspend": False}})
    relent(world)
    for _ in range(30):
        world.settle_and_wait()
        admit(world)
        if world.status.phase.is_final:
            return
        world.pass_time(90)
        world.run_ready()
        world.make_ready()
        world.settle()
        launcher = world.pods.get(LAUNCHER)
        if launcher is not None and launcher["status"]["phase"] == "Running" and not world.decide().deletes:
            assert world.pods.keys() >= {LAUNCHER}
            world.exit(LAUNCHER, 0)
            world.settle()
    raise AssertionError(f"{world.tarragon}\n{world.pods}")


@settings(max_examples=100)
@given(policies, worker_policies, limits, job_annotations, st.lists(orderly, min_size=5, max_size=40))
def test_a_launcher_is_created_only_when_all_workers_are_ready_and_every_story_ends(
    launcher: str, worker: str, run_policy: dict[str, Any], annotation: dict[str, str], story: list[Action]
) -> None:
    job = launcher_job(launcher=launcher, worker=worker, run_policy=run_policy)
    job["metadata"]["annotations"] = annotation
    world = begin(job, WORKER)
    ghost = Ghost()
    for act in story:
        act(world)
        ghost.look(world)
    let_it_go_well(world)
    ghost.look(world)


@settings(max_examples=100)
@given(policies, worker_policies, limits, st.sampled_from([WORKER, None]), st.lists(crashes, min_size=5, max_size=40))
def test_with_crashes_and_caches_that_lag_no_end_counts_twice_and_every_story_ends(
    launcher: str, worker: str, run_policy: dict[str, Any], starts_after: ReplicaType | None, story: list[Action]
) -> None:
    world = begin(launcher_job(launcher=launcher, worker=worker, run_policy=run_policy), starts_after)
    ghost = Ghost()
    for act in story:
        act(world)
        ghost.look(world)
    let_it_go_well(world)
    ghost.look(world)

    for name, record in ((f"dist-{replica}", record) for replica, record in world.status.restarts.items()):
        failed = len(world.ended_badly.get(name, ()))
        assert record.pod_restarts - record.disruptions <= failed
        if name != LAUNCHER:  # a launcher that can't go on is replaced although its pod has not failed
            assert record.pod_restarts <= failed


@settings(max_examples=50)
@given(policies, worker_policies, st.lists(st.sampled_from(["disrupt", "delete", "vanish"]), min_size=1, max_size=6))
def test_a_launcher_that_only_ever_loses_workers_is_never_counted(
    launcher: str, worker: str, losses: list[str]
) -> None:
    world = begin(launcher_job(launcher=launcher, worker=worker, run_policy={"backoffLimit": 0}), WORKER)
    for loss in losses:
        for _ in range(4):
            world.settle_and_wait()
            world.pass_time(90)
            world.run_ready()
        assert world.status.phase is Phase.RUNNING
        {"disrupt": world.disrupt, "delete": world.delete_pod, "vanish": world.vanish}[loss](WORKER_1)
        world.exit(LAUNCHER, 255)
    world.settle_and_wait()

    assert not world.status.phase.is_final
    assert sum(record.counted_for_backoff_limit for record in world.status.restarts.values()) == 0
