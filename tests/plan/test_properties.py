"""Whatever happens, in whatever order, with crashes and caches that lag: no pod twice, none lost, every end once."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.annotations import CHECKPOINT_SECONDS_ANNOTATION
from tarragon.job.eviction_notice import EVICTION_TIME_ANNOTATION
from tarragon.job.model import Replica, RestartPolicy
from tarragon.job.status import JobStatus
from tarragon.plan.view.actions import REFUSED, RejectedCreate
from tests.plan.world import World, is_idle, manifest

NAMES = ("dist-ps-0", "dist-worker-0", "dist-worker-1", "dist-worker-2")


Action = Callable[[World], None]


def on_pod(act: Callable[[World, str], None], *phases: str) -> st.SearchStrategy[Action]:
    """Something that happens to a pod that is in one of these phases."""

    def happens(name: str) -> Action:
        def action(world: World) -> None:
            pod = world.pods.get(name)
            if pod is not None and pod["status"]["phase"] in phases:
                act(world, name)

        return action

    return st.sampled_from(NAMES).map(happens)


def admit(workers: int) -> Action:
    def action(world: World) -> None:
        if world.tarragon and not world.status.phase.is_final and not is_suspended(world):
            world.admit(PS=1, Worker=workers)

    return action


def leave_out(index: int) -> Action:
    """The scheduler takes one worker away, wherever it stands."""

    def action(world: World) -> None:
        admission = world.status.admission
        if admission is None or admission.admitted_at is None or world.status.phase.is_final or is_suspended(world):
            return
        nodes = {replica: node for replica, node in admission.nodes.items() if replica != Replica(WORKER, index)}
        size = Counter(replica.type for replica in nodes)
        world.write_admission(
            replace(admission, nodes=nodes, size=size, resized_at=world.now, resize_reason="made room")
        )

    return action


def withdraw(world: World) -> None:
    if world.status.is_admitted and not world.status.phase.is_final:
        world.withdraw()


def is_suspended(world: World) -> bool:
    return bool(world.job["spec"]["runPolicy"].get("suspend"))


def suspend(flag: bool) -> Action:  # noqa: FBT001 - the value that the field gets
    """Later than the pods were made: those of its very second can't be told from later ones, and are kept."""

    def action(world: World) -> None:
        world.pass_time(1)
        world.edit({"runPolicy": {"suspend": flag}})

    return action


def refuse(seconds: int) -> Action:
    """The server says no to what the job asks for, until it does not any more."""

    def action(world: World) -> None:
        again = world.now + dt.timedelta(seconds=seconds)
        world.refusal = RejectedCreate(reason=REFUSED, message="exceeded quota", retry_at=again)

    return action


def relent(world: World) -> None:
    world.refusal = None


actions: st.SearchStrategy[Action] = st.one_of(
    on_pod(lambda world, name: world.run(name), "Pending"),
    on_pod(lambda world, name: world.exit(name, 0), "Running"),
    on_pod(lambda world, name: world.exit(name, 1), "Running"),
    on_pod(lambda world, name: world.exit(name, 137), "Running"),
    on_pod(lambda world, name: world.restart_in_place(name, 2), "Running"),
    on_pod(lambda world, name: world.disrupt(name), "Pending", "Running"),
    on_pod(lambda world, name: world.delete_pod(name), "Pending", "Running", "Failed", "Succeeded"),
    on_pod(lambda world, name: world.vanish(name), "Pending", "Running"),
    st.just(World.bury),
    st.integers(1, 3).map(admit),
    st.integers(1, 2).map(leave_out),
    st.just(withdraw),
    st.booleans().map(suspend),
    st.integers(1, 30).map(refuse),
    st.just(relent),
    st.integers(1, 90).map(lambda seconds: lambda world: world.pass_time(seconds)),
    st.just(lambda world: world.step()),
    st.integers(0, 5).map(lambda writes: lambda world: world.step(writes)),
    st.integers(1, 8).map(lambda behind: lambda world: world.lagging_step(behind)),
    st.just(lambda world: world.settle()),
)


@dataclass
class Ghost:
    """What must never be taken back."""

    before: JobStatus = field(default_factory=JobStatus)
    made_when_finished: dict[str, int] = field(default_factory=dict)

    def look(self, world: World) -> None:
        after = world.status
        assert after.succeeded_replicas >= self.before.succeeded_replicas
        assert total(after) >= total(self.before)
        if self.before.phase.is_final:
            assert after.phase is self.before.phase
            assert after.completion_time == self.before.completion_time
        for replica in after.succeeded_replicas:
            name = f"dist-{replica}"
            assert world.created[name] == self.made_when_finished.setdefault(name, world.created[name])
        self.before = after


def total(status: JobStatus) -> int:
    return sum(record.total for record in status.restarts.values())


def start(policy: RestartPolicy, run_policy: dict[str, object], seconds: int) -> World:
    job = manifest({"PS": 1, "Worker": 2}, policy=policy.value, run_policy=run_policy, **{"max-instances": 3})
    job["metadata"]["annotations"] = {CHECKPOINT_SECONDS_ANNOTATION: str(seconds)}
    world = World(job)
    world.settle()
    world.admit(PS=1, Worker=2)
    world.settle()
    return world


@settings(max_examples=300)
@given(
    st.sampled_from(RestartPolicy),
    st.fixed_dictionaries({}, optional={"backoffLimit": st.integers(0, 3), "cleanPodPolicy": st.just("Running")}),
    st.sampled_from([0, 20]),
    st.lists(actions, max_size=30),
)
def test_no_pod_twice_none_lost_every_end_counted_once(
    policy: RestartPolicy, run_policy: dict[str, object], seconds: int, story: list[Action]
) -> None:
    world = start(policy, run_policy, seconds)
    ghost = Ghost()
    for act in story:
        act(world)
        ghost.look(world)
    at_rest(world)
    ghost.look(world)

    for name in NAMES:
        record = world.status.restarts.get(world.replica(name))
        replaced, bad = len(world.replaced.get(name, ())), len(world.ended_badly.get(name, ()))
        assert replaced <= (record.pod_restarts if record is not None else 0) <= bad
    everything_that_should_be_is(world)


def at_rest(world: World) -> None:
    """Settled, with all back-offs waited for, and nobody in the way."""
    world.bury()
    relent(world)
    for _ in range(5):
        step = world.settle()
        if step.requeue_at is None:
            return
        world.pass_time(max(0.0, (step.requeue_at - world.now).total_seconds()))
    assert is_idle(world.decide())


def everything_that_should_be_is(world: World) -> None:
    status = world.status
    assert status.obstacle is None
    assert status.condition("Blocked") is None
    pods = {name for name, pod in world.pods.items() if pod["status"]["phase"] in {"Pending", "Running"}}
    if status.phase.is_final or is_suspended(world) or not status.is_admitted or status.admission is None:
        may_stay = status.phase.is_final and "Running" not in world.job["spec"]["runPolicy"].get("cleanPodPolicy", "")
        assert not pods or may_stay
        assert not world.services or not (status.phase.is_final or is_suspended(world))
        return
    wanted = {f"dist-{replica}" for replica in status.admission.nodes}
    assert not any(EVICTION_TIME_ANNOTATION in world.pods[name]["metadata"].get("annotations", {}) for name in pods)
    finished = {f"dist-{replica}" for replica in status.succeeded_replicas}
    assert wanted - finished <= pods <= wanted
