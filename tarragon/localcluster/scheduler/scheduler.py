"""The scheduler of pods that no job owns, such as those of `kubectl run`: each goes to the first node that it fits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import to_builtins

from tarragon.base.clock import Clock
from tarragon.base.resources import Resources, minus, total
from tarragon.client.errors import ApiError
from tarragon.client.port import Cluster
from tarragon.kube.codec import timestamp
from tarragon.kube.core import NODES, PODS, Node, Pod, PodCondition
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.events import Recorder
from tarragon.localcluster.fit import obstacles, offered, verdict, wanted

NAME = "default-scheduler"

Bind = Callable[[Pod, str], Awaitable[None]]
"""Writes which node a pod goes to; fails with an ApiError when the pod has changed or gone."""

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one pod takes of one node."""

    node: str
    wanted: Resources


class Scheduler:
    """First fit, by priority and age. Knows selectors, required node affinity, taints, resources and pod slots.

    Pods that others place (`spec.nodeName` set from the start, another `schedulerName`) only count as taken room.
    Affinity between pods and topology spread are not looked at.
    """

    def __init__(self, cluster: Cluster, bind: Bind, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._bind = bind
        self._clock = clock
        self._recorder = Recorder(cluster, clock, NAME)
        self._pods = logged_cache(cluster, PODS, clock, jitter)
        self._nodes = logged_cache(cluster, NODES, clock, jitter)
        self._claims: dict[Key, _Claim] = {}
        self._taken: dict[str, Resources] = {}
        self._waiting: dict[Key, Pod] = {}
        self._changed = asyncio.Event()
        self._pods.subscribe(self._follow_pod)
        self._nodes.subscribe(lambda _key, _old, _new: self._changed.set())

    async def run(self) -> None:
        """For ever, until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._nodes.run())
            await self._pods.synced()
            await self._nodes.synced()
            while True:
                self._changed.clear()
                if not await self._pass():
                    tasks.create_task(self._wake_later())
                await self._changed.wait()

    async def _wake_later(self) -> None:
        await self._clock.sleep(_RETRY_SECONDS)
        self._changed.set()

    def _follow_pod(self, key: Key, _old: Pod | None, new: Pod | None) -> None:
        held = self._claims.get(key)
        self._note(key, new)
        if key in self._waiting or (held is not None and key not in self._claims):
            self._changed.set()

    def _note(self, key: Key, pod: Pod | None) -> None:
        """Book what the watch has shown: who takes room, who waits."""
        if pod is None or pod.is_finished:
            self._waiting.pop(key, None)
            self._claim(key, None)
        elif pod.spec.node_name:
            self._waiting.pop(key, None)
            self._claim(key, _Claim(pod.spec.node_name, wanted(pod)))
        elif pod.metadata.is_ending or (pod.spec.scheduler_name or NAME) != NAME:
            self._waiting.pop(key, None)
        elif key not in self._claims:
            # With a claim it is being bound: the watch has not shown it yet.
            self._waiting[key] = pod

    def _claim(self, key: Key, claim: _Claim | None) -> None:
        before = self._claims.pop(key, None)
        if before is not None:
            self._taken[before.node] = minus(self._taken[before.node], before.wanted)
        if claim is not None:
            self._claims[key] = claim
            self._taken[claim.node] = total([self._taken.get(claim.node, {}), claim.wanted])

    async def _pass(self) -> bool:
        """Look at everyone who waits; False when a write failed and nothing else would give it another try."""
        went_well = True
        for key in sorted(self._waiting, key=self._turn):
            pod = self._waiting.get(key)
            if pod is None:
                continue  # It went, or was placed, while another was being written.
            try:
                await self._place(key, pod)
            except ApiError:
                # Most often a Conflict, and the watch will show what has changed. But that may be seen already.
                went_well = False
        return went_well

    def _turn(self, key: Key) -> tuple[int, str, Key]:
        pod = self._waiting[key]
        created = pod.metadata.creation_timestamp
        return -(pod.spec.priority or 0), created.isoformat() if created else "", key

    async def _place(self, key: Key, pod: Pod) -> None:
        reasons: list[str] = []
        for node in self._nodes_in_order():
            free = minus(offered(node), self._taken.get(node.metadata.name, {}))
            found = obstacles(pod, node, free)
            if not found:
                await self._assign(key, pod, node.metadata.name)
                return
            reasons += found
        await self._explain(pod, verdict(len(self._nodes.objects), reasons))

    def _nodes_in_order(self) -> list[Node]:
        return [node for _, node in sorted(self._nodes.objects.items())]

    async def _assign(self, key: Key, pod: Pod, node: str) -> None:
        del self._waiting[key]
        self._claim(key, _Claim(node, wanted(pod)))
        try:
            await self._bind(pod, node)
        except ApiError:
            self._claim(key, None)
            self._note(key, self._pods.objects.get(key))
            raise
        said = f"Successfully assigned {key} to {node}"
        await self._recorder.tell(Event(about=_reference(pod), type="Normal", reason="Scheduled", message=said))

    async def _explain(self, pod: Pod, message: str) -> None:
        """Once a change: who waits unchanged is not written to."""
        known = pod.condition("PodScheduled")
        if known is not None and known.status == "False" and known.message == message:
            return
        condition = PodCondition(
            type="PodScheduled",
            status="False",
            reason="Unschedulable",
            message=message,
            last_transition_time=known.last_transition_time if known and known.status == "False" else self._clock.now(),
        )
        others = [other for other in pod.status.conditions if other.type != condition.type]
        change = {
            "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": [_written(each) for each in [*others, condition]]},
        }
        await self._cluster.patch(PODS, pod.metadata.key, change, subresource="status")
        event = Event(about=_reference(pod), type="Warning", reason="FailedScheduling", message=message)
        await self._recorder.tell(event)


def _written(condition: PodCondition) -> dict[str, object]:
    fields: dict[str, object] = to_builtins(condition)
    if condition.last_transition_time is not None:
        fields["lastTransitionTime"] = timestamp(condition.last_transition_time)
    return fields


def _reference(pod: Pod) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Pod", key=pod.metadata.key, uid=pod.metadata.uid)
