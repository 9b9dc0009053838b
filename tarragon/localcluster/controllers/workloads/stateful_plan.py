"""What a stateful set does next, pod by pod in the order of their numbers. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.localcluster.controllers.workloads.model import Json, StatefulSet
from tarragon.localcluster.controllers.workloads.pod_control import MOST_AT_ONCE, omitting_zeros
from tarragon.localcluster.controllers.workloads.pods import Pod
from tarragon.localcluster.controllers.workloads.revisions import HASH_LABEL


@dataclass(frozen=True, slots=True)
class Step:
    """`make`: numbers of pods."""

    make: Sequence[int] = ()
    delete: Sequence[Pod] = ()


WAIT = Step()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """`update` is the name of the revision of the template as it is."""

    owner: StatefulSet
    pods: Mapping[int, Pod]
    update: str
    now: dt.datetime

    @property
    def wanted(self) -> range:
        start = self.owner.spec.ordinals.start
        return range(start, start + self.owner.spec.replicas)

    @property
    def current(self) -> str:
        """The name of the revision that the last finished rollout was of."""
        return str(self.owner.status.get("currentRevision") or self.update)

    def is_healthy(self, pod: Pod | None) -> bool:
        if pod is None or pod.metadata.is_ending or pod.status.phase != "Running":
            return False
        return pod.is_available(self.owner.spec.min_ready_seconds, self.now)


def number_of(owner: StatefulSet, pod: Pod) -> int | None:
    head, _, tail = pod.metadata.name.rpartition("-")
    return int(tail) if head == owner.metadata.name and tail.isdigit() else None


def revision_for(scene: Scene, number: int) -> str:
    """Below the partition, pods are made as they were."""
    strategy = scene.owner.spec.update_strategy
    is_below = number < scene.wanted.start + strategy.rolling_update.partition
    return scene.current if strategy.type == "RollingUpdate" and is_below else scene.update


def step(scene: Scene) -> Step:
    if scene.owner.spec.pod_management_policy == "Parallel":
        return _all_at_once(scene)
    for number in scene.wanted:
        pod = scene.pods.get(number)
        if pod is None:
            return Step(make=[number])
        if pod.is_finished and not pod.metadata.is_ending:
            return Step(delete=[pod])
        if not scene.is_healthy(pod):
            # One that never gets well is replaced all the same when its template has changed.
            return _replaced(scene) if _is_outdated(scene, number, pod) else WAIT
    condemned = list(_condemned(scene))
    if condemned:
        first = condemned[0]
        return WAIT if first.metadata.is_ending else Step(delete=[first])
    return _replaced(scene)


def _all_at_once(scene: Scene) -> Step:
    missing = [number for number in scene.wanted if number not in scene.pods]
    finished = [pod for number in scene.wanted if (pod := scene.pods.get(number)) and pod.is_finished]
    gone = [pod for pod in (*finished, *_condemned(scene)) if not pod.metadata.is_ending]
    if missing or gone:
        return Step(missing[:MOST_AT_ONCE], gone)
    return _replaced(scene)


def _condemned(scene: Scene) -> Iterator[Pod]:
    """The highest number first."""
    return (scene.pods[number] for number in sorted(scene.pods, reverse=True) if number not in scene.wanted)


def _replaced(scene: Scene) -> Step:
    """From the highest number down to the partition, one at a time, each when those above it are well."""
    if scene.owner.spec.update_strategy.type != "RollingUpdate":
        return WAIT
    for number in reversed(scene.wanted):
        pod = scene.pods.get(number)
        if pod is None:
            return WAIT
        if _is_outdated(scene, number, pod):
            return WAIT if pod.metadata.is_ending else Step(delete=[pod])
        if not scene.is_healthy(pod):
            return WAIT
    return WAIT


def _is_outdated(scene: Scene, number: int, pod: Pod) -> bool:
    strategy = scene.owner.spec.update_strategy
    if strategy.type != "RollingUpdate" or number < scene.wanted.start + strategy.rolling_update.partition:
        return False
    return pod.metadata.labels.get(HASH_LABEL) != scene.update


def status(scene: Scene) -> Json:
    there = list(scene.pods.values())
    staying = [pod for pod in there if not pod.metadata.is_ending]
    updated = sum(pod.metadata.labels.get(HASH_LABEL) == scene.update for pod in staying)
    current = sum(pod.metadata.labels.get(HASH_LABEL) == scene.current for pod in staying)
    ready = sum(pod.is_ready and pod.status.phase == "Running" for pod in staying)
    name = scene.current
    is_rolling = scene.owner.spec.update_strategy.type == "RollingUpdate"
    if is_rolling and updated == ready == len(there) == scene.owner.spec.replicas:
        name, current = scene.update, updated
    return {
        "replicas": len(there),
        "availableReplicas": sum(scene.is_healthy(pod) for pod in staying),
        **omitting_zeros({"readyReplicas": ready, "currentReplicas": current, "updatedReplicas": updated}),
        "currentRevision": name,
        "updateRevision": scene.update,
        "observedGeneration": scene.owner.metadata.generation,
        "collisionCount": 0,
    }
