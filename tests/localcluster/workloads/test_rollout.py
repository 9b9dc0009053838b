"""Properties of rollouts: in any order of events there are never too many pods and never too few available ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tarragon.kube.meta import ObjectMeta
from tarragon.localcluster.controllers.workloads import rollout
from tarragon.localcluster.controllers.workloads.model import (
    Deployment,
    DeploymentSpec,
    Json,
    ReplicaSet,
    ReplicaSetSpec,
    Rolling,
    Strategy,
)


@dataclass
class Stage:
    """A simulation of the two controllers, which act in any order, and of pods, which become ready at any time."""

    wanted: int
    surge: int | str
    missing: int | str
    dice: random.Random
    generation: int = 1
    sets: dict[str, ReplicaSet] = field(default_factory=dict)
    pods: dict[str, list[bool]] = field(default_factory=dict)

    @property
    def deployment(self) -> Deployment:
        rolling = Rolling(max_surge=self.surge, max_unavailable=self.missing)
        spec = DeploymentSpec(
            replicas=self.wanted, strategy=Strategy(rolling_update=rolling), template=template(self.generation)
        )
        return Deployment(metadata=ObjectMeta(name="web", uid="d"), spec=spec)

    @property
    def kin(self) -> rollout.Rollout:
        return rollout.family(self.deployment, self.sets.values())

    @property
    def pod_count(self) -> int:
        return sum(len(pods) for pods in self.pods.values())

    @property
    def available(self) -> int:
        return sum(sum(pods) for pods in self.pods.values())

    def deploy(self) -> None:
        step = rollout.step(self.kin, old_pods_run=False)
        for size in step.sizes:
            self.resize(size.replica_set.metadata.name, size.replicas)
        if step.make is not None:
            name = f"web-{self.generation}"
            metadata = ObjectMeta(name=name, uid=name, generation=1)
            spec = ReplicaSetSpec(replicas=step.make, template=template(self.generation))
            self.sets[name], self.pods[name] = ReplicaSet(metadata=metadata, spec=spec), []

    def resize(self, name: str, replicas: int) -> None:
        old = self.sets[name]
        metadata = msgspec.structs.replace(old.metadata, generation=old.metadata.generation + 1)
        spec = msgspec.structs.replace(old.spec, replicas=replicas)
        self.sets[name] = msgspec.structs.replace(old, metadata=metadata, spec=spec)

    def replicate(self) -> None:
        """A reconciliation by the ReplicaSet controller: it creates and deletes pods, and its status is that before."""
        if not self.sets:
            return
        name = self.dice.choice(sorted(self.sets))
        mine, pods = self.sets[name], self.pods[name]
        status: Json = {
            "observedGeneration": mine.metadata.generation,
            "replicas": len(pods),
            "availableReplicas": sum(pods),
        }
        self.sets[name] = msgspec.structs.replace(mine, status=status)
        pods.sort()  # unready pods are deleted first
        del pods[: max(0, len(pods) - mine.spec.replicas)]
        pods += [False] * (mine.spec.replicas - len(pods))

    def get_ready(self) -> None:
        waiting = [(pods, index) for pods in self.pods.values() for index, ready in enumerate(pods) if not ready]
        if waiting:
            pods, index = self.dice.choice(waiting)
            pods[index] = True

    def lose(self) -> None:
        """A pod dies, which no controller has observed yet."""
        nonempty = [pods for pods in self.pods.values() if pods]
        if nonempty:
            pods = self.dice.choice(nonempty)
            pods.pop(self.dice.randrange(len(pods)))

    def settle(self) -> None:
        for _ in range(40 * (self.wanted + 2) * (len(self.sets) + 1)):
            for act in (self.deploy, self.replicate, self.get_ready):
                act()


def template(generation: int) -> Json:
    return {"spec": {"containers": [{"name": "main", "image": f"i:{generation}"}]}}


SHARES = st.one_of(st.integers(0, 3), st.sampled_from(["25%", "50%", "100%"]))


@settings(max_examples=150)
@given(st.integers(1, 9), SHARES, SHARES, st.integers(0, 2**32))
def test_a_rollout_never_has_too_many_pods_nor_too_few_available_ones(
    wanted: int, surge: int | str, missing: int | str, seed: int
) -> None:
    stage = Stage(wanted, surge, missing, random.Random(seed))
    stage.settle()
    assert stage.available == wanted
    more, fewer = stage.kin.limits

    stage.generation = 2
    for number in range(300):
        stage.dice.choice([stage.deploy, stage.replicate, stage.get_ready])()
        assert stage.pod_count <= wanted + more
        assert stage.available >= wanted - fewer
        if number == 100:
            stage.generation = stage.dice.choice([1, 2, 3])
    stage.settle()

    assert len(stage.pods[f"web-{stage.generation}"]) == stage.pod_count == wanted


@settings(max_examples=100)
@given(st.integers(1, 6), SHARES, SHARES, st.integers(0, 2**32))
def test_lost_pods_are_replaced_exactly_once(wanted: int, surge: int | str, missing: int | str, seed: int) -> None:
    stage = Stage(wanted, surge, missing, random.Random(seed))
    acts = [stage.deploy, stage.replicate, stage.get_ready, stage.lose]
    for number in range(200):
        stage.dice.choice(acts)()
        assert stage.pod_count <= wanted + stage.kin.limits[0]
        stage.generation += number in {70, 140}
    stage.settle()

    assert stage.available == stage.pod_count == wanted


def test_the_replica_set_of_an_earlier_template_is_reused() -> None:
    stage = Stage(3, 1, 0, random.Random(1))
    stage.settle()
    stage.generation = 2
    stage.settle()
    stage.generation = 1
    stage.settle()

    assert sorted(stage.sets) == ["web-1", "web-2"]
    assert len(stage.pods["web-1"]) == 3
