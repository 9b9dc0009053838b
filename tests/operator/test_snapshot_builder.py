"""What is kept between rounds is what one who sees everything for the first time would see."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.support.dict_cluster import NODES, PODS, TFJOBS, DictCluster, Json, a_job, a_node, a_pod
from tarragon.base.clock import FakeClock
from tarragon.base.resources import NVIDIA_GPU, Resources
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.kube.core import PRIORITY_CLASSES
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import Key
from tarragon.operator.informers.accepted_admissions import AcceptedAdmissions
from tarragon.operator.scheduler.gang_scheduler import GangScheduler
from tarragon.scheduling.api.snapshot import NodeState, Snapshot
from tarragon.scheduling.policies import POLICIES
from tarragon.scheduling.state.inventory import Inventory

NAMES = ("a", "b", "c", "d")


class Story:
    """A cluster to which things happen, and one operator that has seen all of it from the beginning."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.shelves = DictCluster(self.clock)
        self.verified = AcceptedAdmissions()
        self.admitter = self.newcomer()

    def newcomer(self) -> GangScheduler:
        """An operator that begins now. It knows which admissions are the first one's: a cluster may have changed so
        that they could not be decided any more.
        """
        world = self.shelves.new_informers()
        world.accepted_admissions = self.verified
        return GangScheduler(self.shelves, self.clock, world, POLICIES["backfill"])  # type: ignore[arg-type]

    def named(self, resource: Any, name: str) -> Json | None:
        return next(
            (it for (kind, key), it in self.shelves.objects.items() if (kind, key.name) == (resource, name)), None
        )

    def node(self, name: str, **traits: Any) -> None:
        self.shelves.put(NODES, a_node(name, **traits))

    def job(self, name: str, **spec: Any) -> Json:
        self.shelves.put(TFJOBS, a_job(name, **{"workers": 2, **spec}))
        found = self.named(TFJOBS.plural, name)
        assert found is not None
        return found

    def pods_run(self, name: str) -> None:
        """What the reconciler makes of an admission, and a kubelet of that."""
        job = self.named(TFJOBS.plural, name)
        nodes = ((job or {}).get("status") or {}).get("tarragon", {}).get("admission", {}).get("nodes", {})
        for node, written in nodes.get("Worker", {}).items():
            for part in str(written).split(","):
                first, _, last = part.partition("-")
                for index in range(int(first), int(last or first) + 1):
                    self.shelves.put(PODS, a_pod(job or {}, f"worker-{index}", node))

    def pod_goes(self, name: str) -> None:
        pod = self.named(PODS.plural, name)
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self.shelves.remove(PODS, Key(pod["metadata"]["namespace"], name))
        elif pod is not None:
            self.shelves.put(
                PODS, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
            )

    def happens(self) -> None:
        """Anything, to anybody."""
        name, other = self.random.choice(NAMES), self.random.choice(NAMES)
        self.random.choice([self._node, self._submit, self._submit, self._pods, self._others])(name, other)

    def _node(self, name: str, other: str) -> None:
        if self.named(NODES.plural, name) is not None and self.random.random() < 1 / 4:
            self.shelves.remove(NODES, Key("", name))
        else:
            self.node(name, ready=self.random.random() < 3 / 4, labels={"disk": other})

    def _submit(self, name: str, other: str) -> None:
        if self.named(TFJOBS.plural, name) is not None and self.random.random() < 1 / 4:
            self.shelves.remove(TFJOBS, Key("default", name))
        else:
            self.job(name, workers=self.random.randrange(1, 9), **self._anything_special(other))

    def _pods(self, name: str, _: str) -> None:
        if self.random.random() < 1 / 2:
            self.pods_run(name)
        else:
            self.pod_goes(f"{name}-worker-{self.random.randrange(4)}")

    def _others(self, name: str, other: str) -> None:
        if self.random.random() < 1 / 2:
            self.shelves.put(PRIORITY_CLASSES, {"metadata": {"name": other}, "value": self.random.randrange(9)})
        else:
            hog = {"nodeName": other, "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
            self.shelves.put(PODS, {"metadata": {"name": f"hog-{name}", "namespace": "x"}, "spec": hog})

    def _anything_special(self, name: str) -> Mapping[str, Any]:
        return self.random.choice(
            [
                {},
                {"min-instances": 1, "max-instances": 9},
                {"runPolicy": {"suspend": True}},
                {"runPolicy": {"schedulingPolicy": {"priorityClass": name}}},
            ]
        )


def seen(snapshot: Snapshot) -> Any:
    """Everything in it, written so that equal pictures are equal."""
    assert isinstance(snapshot.nodes, Inventory)
    table = snapshot.nodes
    rows = [table.from_row(amounts[row]) for amounts in (table.free, table.releasing) for row in range(len(table))]
    assert rows == [
        {**dict.fromkeys(table.resources, 0), **amounts}
        for amounts in [*(state.free for state in table.states), *(state.releasing for state in table.states)]
    ]
    states = [*table.states, *snapshot.unavailable_nodes]
    return [_state(state) for state in states], list(snapshot.waiting), list(snapshot.running), snapshot.rules


def _state(state: NodeState) -> Any:
    amounts = [_without_nothing(each) for each in (state.capacity, state.free, state.releasing)]
    return state.name, amounts, state.unavailable_reason, state.topology


def _without_nothing(amounts: Resources) -> Resources:
    return {name: amount for name, amount in amounts.items() if amount}


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
async def test_whatever_happens_what_is_kept_is_what_a_newcomer_sees(seed: int) -> None:
    story = Story(seed)
    for _ in range(12):
        for _ in range(story.random.randrange(1, 4)):
            story.happens()
        if story.random.random() < 1 / 2:
            await story.admitter.run_cycle()
        story.clock.advance(story.random.choice([0.0, 1.0, 20.0]))
        assert seen(await story.admitter.snapshot()) == seen(await story.newcomer().snapshot())


async def released(story: Story) -> Sequence[int]:
    found = await story.admitter.snapshot()
    return [state.releasing.get(NVIDIA_GPU, 0) // 1000 for state in found.nodes]


async def free(story: Story) -> Sequence[int]:
    found = await story.admitter.snapshot()
    return [state.free.get(NVIDIA_GPU, 0) // 1000 for state in found.nodes]


async def runs(story: Story, name: str, **spec: Any) -> None:
    story.job(name, **spec)
    await story.admitter.run_cycle()
    story.pods_run(name)


async def test_what_an_ending_pod_of_a_job_that_is_gone_holds_is_about_to_be_free() -> None:
    story = Story()
    story.node("n")
    await runs(story, "a")
    story.shelves.remove(TFJOBS, Key("default", "a"))
    assert (await free(story), await released(story)) == ([6], [0])

    story.pod_goes("a-worker-0")
    assert (await free(story), await released(story)) == ([6], [1])

    story.pod_goes("a-worker-0")
    assert (await free(story), await released(story)) == ([7], [0])


async def test_what_an_ending_pod_holds_whose_replica_comes_back_there_is_not_about_to_be_free() -> None:
    story = Story()
    story.node("n")
    await runs(story, "a")
    story.pod_goes("a-worker-1")
    assert (await free(story), await released(story)) == ([6], [0])

    story.pod_goes("a-worker-1")
    assert (await free(story), await released(story)) == ([6], [0])


async def test_what_a_replica_will_need_more_than_its_ending_pod_holds_is_promised_to_nobody_else() -> None:
    story = Story()
    story.node("n")
    await runs(story, "a", workers=1)
    story.clock.advance(20.0)
    story.shelves.put(TFJOBS, a_job("a", workers=1, gpus=6))
    story.pod_goes("a-worker-0")
    await story.admitter.run_cycle()
    assert (await free(story), await released(story)) == ([1], [1])

    story.pod_goes("a-worker-0")
    assert (await free(story), await released(story)) == ([2], [0])


async def test_what_a_dropped_replica_holds_is_about_to_be_free_before_its_pod_is_told_to_end() -> None:
    story = Story()
    story.node("n")
    await runs(story, "a", workers=3)
    admission = {"size": {"Worker": 2}, "nodes": {"Worker": {"n": "0-1"}}}
    job = story.named(TFJOBS.plural, "a")
    story.shelves.put(TFJOBS, apply_merge_patch(job, {"status": {"tarragon": {"admission": admission}}}))
    assert (await free(story), await released(story)) == ([5], [1])

    story.pod_goes("a-worker-2")
    assert (await free(story), await released(story)) == ([5], [1])

    story.pod_goes("a-worker-2")
    assert (await free(story), await released(story)) == ([6], [0])


async def test_a_node_that_goes_while_somebody_asks_for_a_port_for_the_first_time_is_gone() -> None:
    story = Story()
    story.node("n")
    story.node("away", ready=False)
    assert [state.name for state in (await story.admitter.snapshot()).unavailable_nodes] == ["away"]
    story.shelves.remove(NODES, Key("", "away"))
    asking = a_job("a", workers=1)
    container = asking["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 5000, "hostPort": 5000}]
    story.shelves.put(TFJOBS, asking)

    assert seen(await story.admitter.snapshot()) == seen(await story.newcomer().snapshot())


async def test_nodes_say_where_they_stand() -> None:
    story = Story()
    zone, rack = {"topology.kubernetes.io/zone": "z"}, {"cloud.provider.com/topology-rack": "r"}
    story.node("a", labels={**zone, **rack})
    story.node("b", labels=zone)
    story.node("c")
    assert [state.topology for state in (await story.admitter.snapshot()).nodes] == [("z", "r"), ("z", ""), ()]


async def test_a_gang_is_as_urgent_as_its_class_and_preempts_unless_the_class_says_never() -> None:
    story = Story()
    story.shelves.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"})
    story.shelves.put(PRIORITY_CLASSES, {"metadata": {"name": "usual"}, "value": 1, "globalDefault": True})
    story.job("a", runPolicy={"schedulingPolicy": {"priorityClass": "high"}})
    story.job("b")
    found = (await story.admitter.snapshot()).waiting
    assert [(gang.name, gang.priority, gang.can_preempt) for gang in found] == [
        ("TFJob default/a", 9, False),
        ("TFJob default/b", 1, True),
    ]


async def test_a_gang_that_runs_says_what_was_wished_when_its_size_was_decided() -> None:
    story = Story()
    story.node("n")
    elastic = {"min-instances": 1, "max-instances": 12}
    await runs(story, "a", workers=10, **elastic)
    (gang,) = (await story.admitter.snapshot()).running
    assert len(gang.nodes) == 8
    assert gang.last_requested == {WORKER: 10}
    assert (gang.demands[0].minimum, gang.demands[0].requested, gang.demands[0].maximum) == (1, 10, 12)
    assert gang.nodes[Replica(WORKER, 0)] == "n"
