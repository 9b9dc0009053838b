"""Horizontal pod autoscalers: replicas by the CPU and the memory that pods use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tarragon.client.errors import ApiError, NotFound
from tarragon.client.port import Selection
from tarragon.kube.codec import timestamp
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.controllers.workloads import scaling_plan
from tarragon.localcluster.controllers.workloads.conditions import with_condition
from tarragon.localcluster.controllers.workloads.context import Ground, Kept
from tarragon.localcluster.controllers.workloads.model import (
    AUTOSCALERS,
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Autoscaler,
    Json,
)
from tarragon.localcluster.controllers.workloads.pod_control import Hands
from tarragon.localcluster.controllers.workloads.scaling_plan import Load, Reading
from tarragon.localcluster.tables.workload_columns import selector_text

SECONDS = 15.0

Usage = Callable[[], Awaitable[Mapping[str, Mapping[str, int]]]]
"""What each pod uses, by its uid: `cpu` and `memory` in thousandths."""

_TARGETS: Mapping[str, Resource[Any]] = {
    each.kind: each for each in (DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS)
}


class AutoscalerController:
    """Looks every fifteen seconds, and at nothing while there is no autoscaler."""

    def __init__(self, ground: Ground, usage: Usage) -> None:
        self._cluster = ground.cluster
        self._clock = ground.clock
        self._usage = usage
        self.kept: Kept[Autoscaler] = Kept(ground, AUTOSCALERS)
        self._hands: Hands[Autoscaler] = Hands(ground, AUTOSCALERS, "horizontal-pod-autoscaler")
        self._wishes: dict[str, list[tuple[float, int]]] = {}
        self._due: dict[str, float] = {}

    async def run(self) -> None:
        await self.kept.run(self._look)

    async def _look(self, key: Key) -> float | None:
        owner = self.kept.get(key)
        if owner is None or owner.metadata.is_ending:
            return None
        # Its own status, written a moment ago, is no reason to look again.
        mark, now = f"{owner.metadata.uid}/{owner.metadata.generation}", self._clock.monotonic()
        if (due := self._due.get(mark, now)) > now:
            return due - now
        self._due = {known: at for known, at in self._due.items() if at > now} | {mark: now + SECONDS}
        await self._scale(owner)
        return SECONDS

    async def _scale(self, owner: Autoscaler) -> None:
        reference = owner.spec["scaleTargetRef"]
        resource = _TARGETS.get(reference["kind"])
        if resource is None:
            await self._give_up(owner, f"the kind {reference['kind']} is not one that is scaled here")
            return
        key = Key(owner.metadata.namespace, reference["name"])
        try:
            target: Json = await self._cluster.get(resource.reading(dict), key)
        except NotFound as error:
            await self._give_up(owner, str(error))
            return
        replicas = int(target["spec"].get("replicas", 1))
        readings = await self._readings(owner, target, replicas) if replicas else []
        await self._apply(owner, (resource, key), replicas, readings)

    async def _give_up(self, owner: Autoscaler, why: str) -> None:
        conditions = self._conditions(owner, ("AbleToScale", "False", "FailedGetScale", why))
        await self._hands.write_status(owner, owner.status, {"conditions": conditions})

    async def _readings(self, owner: Autoscaler, target: Json, replicas: int) -> list[Reading]:
        pods, usage = await self._pods(owner, target), await self._usage()
        return [_reading(metric, pods, usage, replicas) for metric in owner.spec.get("metrics") or ()]

    async def _pods(self, owner: Autoscaler, target: Json) -> Sequence[Pod]:
        selector = target["spec"].get("selector") or {}
        is_selector = "matchLabels" in selector or "matchExpressions" in selector
        labels = selector_text(selector if is_selector else {"matchLabels": selector})
        found = await self._cluster.list(PODS, Selection(namespace=owner.metadata.namespace, labels=labels))
        return [pod for pod in found.items if pod.status.phase == "Running" and not pod.metadata.is_ending]

    async def _apply(
        self, owner: Autoscaler, target: tuple[Resource[Any], Key], replicas: int, readings: Sequence[Reading]
    ) -> None:
        known = [reading for reading in readings if not reading.trouble]
        status: Json = {"currentReplicas": replicas, "observedGeneration": owner.metadata.generation}
        status["currentMetrics"] = [reading.current for reading in known] or None
        wanted = self._wanted(owner, replicas, readings) if replicas else 0
        if wanted != replicas:
            await self._resize(owner, target, replicas, wanted)
            status["lastScaleTime"] = timestamp(self._clock.now())
        able = ("AbleToScale", "True", "SucceededGetScale", "the HPA controller was able to get the target's scale")
        conditions = self._conditions(owner, able, _activity(replicas, readings))
        await self._hands.write_status(
            owner, owner.status, {**status, "desiredReplicas": wanted, "conditions": conditions}
        )

    def _wanted(self, owner: Autoscaler, replicas: int, readings: Sequence[Reading]) -> int:
        """Where something could not be read, there may be more replicas, and not fewer."""
        is_certain = readings and not any(reading.trouble for reading in readings)
        wishes = [reading.replicas for reading in readings if not reading.trouble]
        most = max([*wishes, *([] if is_certain else [replicas])])
        return scaling_plan.within(self._calm(owner, most), owner.spec)

    async def _resize(self, owner: Autoscaler, target: tuple[Resource[Any], Key], old: int, new: int) -> None:
        resource, key = target
        try:
            await self._cluster.patch(resource.reading(dict), key, {"spec": {"replicas": new}})
        except ApiError as error:
            await self._hands.tell(owner, "Warning", "FailedRescale", str(error))
            raise
        reason = "above" if new > old else "below"
        words = f"New size: {new}; reason: resource utilization {reason} target"
        await self._hands.tell(owner, "Normal", "SuccessfulRescale", words)

    def _calm(self, owner: Autoscaler, wanted: int) -> int:
        """The largest wish of the last minutes. After a restart of the cluster they begin anew."""
        now = self._clock.monotonic()
        since = now - scaling_plan.calm_seconds(owner.spec)
        wishes = [each for each in self._wishes.get(owner.metadata.uid, ()) if each[0] >= since]
        self._wishes[owner.metadata.uid] = [*wishes, (now, wanted)]
        return max(wish for _, wish in self._wishes[owner.metadata.uid])

    def _conditions(self, owner: Autoscaler, *told: tuple[str, str, str, str]) -> list[Json]:
        conditions: list[Json] = list(owner.status.get("conditions") or [])
        for words in told:
            wanted = dict(zip(("type", "status", "reason", "message"), words, strict=True))
            conditions = with_condition(conditions, wanted, self._clock.now())
        return conditions


def _reading(metric: Json, pods: Sequence[Pod], usage: Mapping[str, Mapping[str, int]], replicas: int) -> Reading:
    if metric["type"] != "Resource":
        return Reading(trouble=f"there are no metrics of type {metric['type']} here, only of type Resource")
    name = metric["resource"]["name"]
    measured = [pod for pod in pods if name in usage.get(pod.metadata.uid, {})]
    loads = [Load(usage[pod.metadata.uid][name], scaling_plan.asked_of(pod, name) or 0) for pod in measured]
    return scaling_plan.read(metric, loads, replicas)


def _activity(replicas: int, readings: Sequence[Reading]) -> tuple[str, str, str, str]:
    """A condition: its type, status, reason and message."""
    troubles = [reading.trouble for reading in readings if reading.trouble]
    if not replicas:
        words = "scaling is disabled since the replica count of the target is zero"
        return "ScalingActive", "False", "ScalingDisabled", words
    if troubles or not readings:
        return "ScalingActive", "False", "FailedGetResourceMetric", "; ".join(troubles) or "it names no metrics"
    words = "the HPA was able to successfully calculate a replica count from the metrics"
    return "ScalingActive", "True", "ValidMetricFound", words
