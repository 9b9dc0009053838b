"""Evicts pods from nodes with NoExecute taints that they do not tolerate, or no longer tolerate."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.client.errors import Conflict, NotFound
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.informer.cache_reader import KeyIndex
from tarragon.client.port import Client, DeleteOptions
from tarragon.kube.core import NODES, PODS, MinimalMeta, Node, Taint, Toleration
from tarragon.kube.event import Event, ObjectReference
from tarragon.kube.meta import Key, PartialObject
from tarragon.kube.scheduling.taints import tolerates
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

NO_EXECUTE = "NoExecute"


class Meta(MinimalMeta, frozen=True):
    deletion_timestamp: str = ""


class Spec(PartialObject, frozen=True):
    node_name: str = ""
    tolerations: list[Toleration] = []


class Status(PartialObject, frozen=True):
    phase: str = ""


class Tolerant(PartialObject, frozen=True):
    """The fields of a pod that the controller needs."""

    metadata: Meta = Meta()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def is_over(self) -> bool:
        return bool(self.metadata.deletion_timestamp) or self.status.phase in {"Succeeded", "Failed"}


TOLERANT_PODS = PODS.with_model(Tolerant)


class TaintController:
    """Deletes pods as the taint controller of Kubernetes does.

    A toleration's seconds count from when the pod is seen on the tainted node; if the taint goes before they pass,
    nothing happens.
    """

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._clock = clock
        self._recorder = EventRecorder(cluster, clock, "taint-controller")
        self._pods = logged_cache(cluster, TOLERANT_PODS, clock, jitter)
        self._nodes = logged_cache(cluster, NODES, clock, jitter)
        self._pods_on = KeyIndex(self._pods, _node_of)
        self._since: dict[str, float] = {}
        self._queue: ReconcileQueue[Key] = ReconcileQueue(clock)
        self._pods.add_event_handler(self._pod_changed)
        self._nodes.add_event_handler(self._node_changed)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._queue.run(self._reconcile))

    def _pod_changed(self, key: Key, old: Tolerant | None, new: Tolerant | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._since.pop(old.metadata.uid, None)
        if new is not None and any(self._taints(new)):
            self._queue.add(key)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if (old.spec.taints if old is not None else []) != (new.spec.taints if new is not None else []):
            for pod in sorted(self._pods_on.keys(key.name)):
                self._queue.add(pod)

    def _taints(self, pod: Tolerant) -> Iterator[Taint]:
        node = self._nodes.objects.get(Key("", pod.spec.node_name))
        yield from (taint for taint in (node.spec.taints if node is not None else ()) if taint.effect == NO_EXECUTE)

    async def _reconcile(self, key: Key) -> float | None:
        pod = self._pods.objects.get(key)
        if pod is None or pod.is_over:
            return None
        taints = list(self._taints(pod))
        if not taints:
            self._since.pop(pod.metadata.uid, None)
            return None
        stays = self._tolerated_seconds(pod, taints)
        if stays is None or stays > 0:
            return stays
        await self._evict(pod)
        return None

    def _tolerated_seconds(self, pod: Tolerant, taints: list[Taint]) -> float | None:
        """For how many seconds from now the pod tolerates the taints; None without a limit."""
        used = [[each for each in pod.spec.tolerations if tolerates(each, taint)] for taint in taints]
        if not all(used):
            return 0.0
        limits = [
            each.toleration_seconds for several in used for each in several if each.toleration_seconds is not None
        ]
        if not limits:
            return None
        now = self._clock.monotonic()
        return self._since.setdefault(pod.metadata.uid, now) + max(0, min(limits)) - now

    async def _evict(self, pod: Tolerant) -> None:
        key = pod.metadata.key
        about = ObjectReference(api_version="v1", kind="Pod", key=key, uid=pod.metadata.uid)
        words = f"Marking for deletion Pod {key}"
        await self._recorder.record(
            Event(involved_object=about, type="Normal", reason="TaintManagerEviction", message=words)
        )
        with suppress(NotFound, Conflict):
            await self._cluster.delete(PODS, key, DeleteOptions(uid=pod.metadata.uid))


def _node_of(pod: Tolerant) -> Iterator[str]:
    if pod.spec.node_name:
        yield pod.spec.node_name
