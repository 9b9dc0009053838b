"""The default scheduler, for pods that Tarragon does not place, such as those of `kubectl run`: first fit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import to_builtins

from tarragon.base.clock import Clock
from tarragon.base.resources import Resources, add_resources, subtract
from tarragon.client.errors import ApiError
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.port import Client
from tarragon.kube.codec import format_time
from tarragon.kube.core import NODES, PODS, Node, Pod, PodCondition
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.pod_requests import scheduling_request
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.scheduler.filters import filter_reasons, unschedulable_message

DEFAULT_SCHEDULER = "default-scheduler"

Bind = Callable[[Pod, str], Awaitable[None]]
"""Binds a pod to a node. Raises ApiError if the pod was changed or deleted."""

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Allocation:
    """The resources that a pod uses on its node."""

    node: str
    wanted: Resources


class Scheduler:
    """Binds pods one at a time to the first node that fits, by priority and age.

    Node selectors, required node affinity, taints, resources, host ports and the number of pods are respected; pod
    affinity and topology spread constraints are ignored. Pods with another `schedulerName` only count as allocated
    resources.
    """

    def __init__(self, cluster: Client, bind: Bind, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._bind = bind
        self._clock = clock
        self._recorder = EventRecorder(cluster, clock, DEFAULT_SCHEDULER)
        self._pods = logged_cache(cluster, PODS, clock, jitter)
        self._nodes = logged_cache(cluster, NODES, clock, jitter)
        self._allocations: dict[Key, _Allocation] = {}
        self._allocated: dict[str, Resources] = {}
        self._pending: dict[Key, Pod] = {}
        self._changed = asyncio.Event()
        self._pods.add_event_handler(self._follow_pod)
        self._nodes.add_event_handler(lambda _key, _old, _new: self._changed.set())

    async def run(self) -> None:
        """Schedule pods until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._nodes.run())
            await self._pods.wait_for_sync()
            await self._nodes.wait_for_sync()
            while True:
                self._changed.clear()
                if not await self._schedule_all():
                    tasks.create_task(self._retry_later())
                await self._changed.wait()

    async def _retry_later(self) -> None:
        await self._clock.sleep(_RETRY_SECONDS)
        self._changed.set()

    def _follow_pod(self, key: Key, _old: Pod | None, new: Pod | None) -> None:
        allocated_before = self._allocations.get(key)
        self._update(key, new)
        if key in self._pending or (allocated_before is not None and key not in self._allocations):
            self._changed.set()

    def _update(self, key: Key, pod: Pod | None) -> None:
        """Update allocations and pending pods from the state of a pod in the cache."""
        if pod is None or pod.is_finished:
            self._pending.pop(key, None)
            self._allocate(key, None)
        elif pod.spec.node_name:
            self._pending.pop(key, None)
            self._allocate(key, _Allocation(pod.spec.node_name, scheduling_request(pod.spec, pod.status)))
        elif (
            pod.metadata.is_being_deleted
            or pod.spec.scheduling_gates
            or (pod.spec.scheduler_name or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER
        ):
            self._pending.pop(key, None)
        elif key not in self._allocations:
            # A pod with an allocation is being bound, and the watch has not delivered the binding yet.
            self._pending[key] = pod

    def _allocate(self, key: Key, allocation: _Allocation | None) -> None:
        before = self._allocations.pop(key, None)
        if before is not None:
            self._allocated[before.node] = subtract(self._allocated[before.node], before.wanted)
        if allocation is not None:
            self._allocations[key] = allocation
            self._allocated[allocation.node] = add_resources(
                [self._allocated.get(allocation.node, {}), allocation.wanted]
            )

    async def _schedule_all(self) -> bool:
        """Try to schedule every pending pod. False if a write failed, so that the caller must retry."""
        is_complete = True
        for key in sorted(self._pending, key=self._queue_key):
            pod = self._pending.get(key)
            if pod is None:
                continue  # It was deleted or bound during an earlier write of this cycle.
            try:
                await self._schedule(key, pod)
            except ApiError:
                # Usually a Conflict, after which the watch delivers the change. But it may be in the cache already.
                is_complete = False
        return is_complete

    def _queue_key(self, key: Key) -> tuple[int, str, Key]:
        pod = self._pending[key]
        created = pod.metadata.creation_timestamp
        return -(pod.spec.priority or 0), created.isoformat() if created else "", key

    async def _schedule(self, key: Key, pod: Pod) -> None:
        reasons: list[str] = []
        for node in self._nodes_in_order():
            reasons_here = filter_reasons(pod, node, self._allocated.get(node.metadata.name, {}))
            if not reasons_here:
                await self._bind_pod(key, pod, node.metadata.name)
                return
            reasons += reasons_here
        await self._report_unschedulable(pod, unschedulable_message(len(self._nodes.objects), reasons))

    def _nodes_in_order(self) -> list[Node]:
        return [node for _, node in sorted(self._nodes.objects.items())]

    async def _bind_pod(self, key: Key, pod: Pod, node: str) -> None:
        del self._pending[key]
        self._allocate(key, _Allocation(node, scheduling_request(pod.spec)))
        try:
            await self._bind(pod, node)
        except ApiError:
            self._allocate(key, None)
            self._update(key, self._pods.objects.get(key))
            raise
        message = f"Successfully assigned {key} to {node}"
        await self._recorder.record(
            Event(involved_object=_reference(pod), type="Normal", reason="Scheduled", message=message)
        )

    async def _report_unschedulable(self, pod: Pod, message: str) -> None:
        """Write the condition and the event, unless the condition already has this message."""
        old = pod.condition("PodScheduled")
        if old is not None and old.status == "False" and old.message == message:
            return
        condition = PodCondition(
            type="PodScheduled",
            status="False",
            reason="Unschedulable",
            message=message,
            last_transition_time=old.last_transition_time if old and old.status == "False" else self._clock.now(),
        )
        others = [other for other in pod.status.conditions if other.type != condition.type]
        change = {
            "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
            "status": {"conditions": [_encoded_condition(each) for each in [*others, condition]]},
        }
        await self._cluster.patch(PODS, pod.metadata.key, change, subresource="status")
        event = Event(involved_object=_reference(pod), type="Warning", reason="FailedScheduling", message=message)
        await self._recorder.record(event)


def _encoded_condition(condition: PodCondition) -> dict[str, object]:
    fields: dict[str, object] = to_builtins(condition)
    if condition.last_transition_time is not None:
        fields["lastTransitionTime"] = format_time(condition.last_transition_time)
    return fields


def _reference(pod: Pod) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Pod", key=pod.metadata.key, uid=pod.metadata.uid)
