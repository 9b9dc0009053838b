"""Builds the snapshot that the operator's scheduler would see, from the objects that this user may list."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from tarragon.base.clock import Clock
from tarragon.base.resources import Resources
from tarragon.cli.explain.forbidden_lists import JOBS, NODES, PODS
from tarragon.cli.jobview.target import ClusterReader
from tarragon.client.errors import Conflict, Forbidden, NotFound
from tarragon.client.port import ALL_OBJECTS, ObjectList, Selector, WatchEvent
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.model import gang_name
from tarragon.job.status_encoding import recorded_status
from tarragon.kube.core import PODS as PODS_RESOURCE
from tarragon.kube.core import SERVICES, Node
from tarragon.kube.meta import CustomObject, Key, Resource
from tarragon.kube.scheduling.node_gpu_sharing import GPU_ANCHOR_LABEL
from tarragon.operator.informers.informers import Informers
from tarragon.operator.informers.pod_usage import holds_resources, requests_of
from tarragon.operator.scheduler.gang_scheduler import AdmissionConfig, GangScheduler
from tarragon.plan.config.published import SYSTEM_NAMESPACE
from tarragon.plan.objects.gpu_anchors import AnchorSettings, anchor_place
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.decision import Decision
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.explain.forecast import RunTimeModel
from tarragon.scheduling.explain.runtime_estimates import RunTime, RunTimeEstimates
from tarragon.scheduling.state.memory import Memory

if TYPE_CHECKING:
    from tarragon.client.port import Client

T = TypeVar("T")


_KIND_NAMES = {NODES: NODES, PODS: PODS, **{framework.resource.full_name: JOBS for framework in FRAMEWORKS}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerView:
    """The scheduler's view of the cluster. `snapshot` is None if this user may not list nodes."""

    snapshot: Snapshot | None
    outlook: RunTimeModel
    forbidden: Sequence[str]
    """Which of nodes, pods and jobs this user may not list in all namespaces."""
    nodes: Sequence[Node]
    other_pods: Mapping[str, Sequence[tuple[str, Resources]]]
    """By node, the name and the requests of each pod that belongs to no job."""


async def build_scheduler_view(
    reader: ClusterReader, namespace: str, clock: Clock, rules: SchedulingRules
) -> SchedulerView:
    """Run one scheduling cycle of the operator against a read-only cluster, and capture its snapshot."""
    still = ReadOnlyCluster(reader, namespace)
    cluster = cast("Client", still)
    anchors = AnchorSettings(namespace=await _anchor_namespace(reader))
    settings = OperatorSettings(pod_groups={}, gpu_anchors=anchors)
    world = Informers(cluster, FRAMEWORKS, clock, settings, random.Random(0))
    snapshots: list[Snapshot] = []

    def capture(snapshot: Snapshot, _: Memory) -> Sequence[Decision]:
        snapshots.append(snapshot)
        return ()

    admitter = GangScheduler(cluster, clock, world, capture, AdmissionConfig(rules=lambda: rules))
    tasks = [asyncio.create_task(cache.run()) for cache in world.caches]
    synced = asyncio.create_task(world.wait_for_sync())
    tasks.append(synced)
    try:
        # The informers of an operator would retry forever; a user waits for this one.
        await asyncio.wait({synced, still.failure}, return_when=asyncio.FIRST_COMPLETED)
        if still.failure.done():
            still.failure.result()
        await admitter.run_cycle()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return SchedulerView(
        snapshot=None if NODES in still.forbidden or not snapshots else snapshots[0],
        outlook=_outlook(world, clock),
        forbidden=sorted(still.forbidden),
        nodes=list(world.nodes.objects.values()),
        other_pods=_others(world, anchors),
    )


class ReadOnlyCluster:
    """A read-only Cluster for one scheduling cycle: lists work, watches never report a change, patches conflict.

    A forbidden list is repeated in the user's namespace; if that is forbidden too, it is empty.
    """

    def __init__(self, reader: ClusterReader, namespace: str) -> None:
        self._looker = reader
        self._namespace = namespace
        self.forbidden: set[str] = set()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Holds the first error of a list; it never has a result."""

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        if resource.full_name == SERVICES.full_name:
            return _empty()
        try:
            return await self._permitted(resource, selection)
        except Exception as error:  # whatever it is: nobody else would end the wait
            if not self.failure.done():
                self.failure.set_exception(error)
            raise

    async def _permitted(self, resource: Resource[T], selection: Selector) -> ObjectList[T]:
        try:
            return await self._looker.list(resource, selection)
        except NotFound:
            return _empty()
        except Forbidden:
            if resource.full_name in _KIND_NAMES:
                self.forbidden.add(_KIND_NAMES[resource.full_name])
        if resource.namespaced:
            with suppress(Forbidden):
                return await self._looker.list(resource, Selector(namespace=self._namespace))
        return _empty()

    def stream_list(self, *_: object) -> None:
        return

    async def watch(self, resource: Resource[T], _: Selector, __: str) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", resource.version, None)

    async def patch(self, resource: Resource[T], key: Key, *_: object, **__: object) -> T:
        message = f"{resource.full_name} {key} is read-only here"
        raise Conflict({"status": "Failure", "code": 409, "reason": "Conflict", "message": message})


def _empty() -> ObjectList[T]:
    return ObjectList([], "1")


async def _anchor_namespace(reader: ClusterReader) -> str:
    """Return the namespace of the pods that hold GPUs for those that share them: the usual one, if there are none."""
    with suppress(Forbidden):
        found = await reader.list(PODS_RESOURCE, Selector(label_selector=f"{GPU_ANCHOR_LABEL}=true"))
        namespaces = Counter(pod.metadata.namespace for pod in found.items)
        if namespaces and SYSTEM_NAMESPACE not in namespaces:
            return namespaces.most_common(1)[0][0]
    return SYSTEM_NAMESPACE


def _others(world: Informers, anchors: AnchorSettings) -> Mapping[str, Sequence[tuple[str, Resources]]]:
    """By node, return the name and the requests of each pod that no job controls. Anchors hold nothing for
    themselves.
    """
    jobs = {found.owner_identity for _, found in world.all_jobs()}
    found: dict[str, list[tuple[str, Resources]]] = {}
    for key, pod in sorted(world.pods.objects.items()):
        is_anchor = anchor_place(pod, anchors.namespace) is not None
        if holds_resources(pod) and pod.metadata.controller_identity not in jobs and not is_anchor:
            found.setdefault(pod.spec.node_name, []).append((f"pod {key}", requests_of(pod)))
    return found


def _outlook(world: Informers, clock: Clock) -> RunTimeModel:
    """Collect the run times of finished and running jobs. Jobs with similar names tend to run equally long."""
    lives: list[tuple[float, RunTime]] = []
    kinds: dict[str, Sequence[Hashable]] = {}
    for framework, found in world.all_jobs():
        keys = kinds[gang_name(framework.kind, found.metadata.key)] = similarity_keys(found)
        status = recorded_status(found)
        admission = status.admission
        started = (admission.admitted_at if admission is not None else None) or status.start_time
        if started is not None and (status.completion_time is not None or not status.phase.is_final):
            until = status.completion_time or clock.now()
            life = RunTime(
                seconds=(until - started).total_seconds(), is_finished=status.completion_time is not None, kinds=keys
            )
            lives.append((until.timestamp(), life))
    ordered = [life for _, life in sorted(lives, key=lambda each: each[0]) if life.seconds >= 0]
    return RunTimeModel(estimates=RunTimeEstimates(ordered), kinds_by_gang=kinds)


def similarity_keys(found: CustomObject) -> Sequence[Hashable]:
    """Return similarity keys, the most specific first: namespace with name family and size, down to the namespace.

    `train-17` and `train-18` are one family: a trailing number, or the part after the last `-`, does not count.
    """
    key, admission = found.metadata.key, recorded_status(found).admission
    size = tuple(sorted(admission.size.items())) if admission is not None else ()
    family = key.name.rstrip("0123456789").rstrip("-.") if key.name[-1:].isdigit() else key.name.rpartition("-")[0]
    return ((key.namespace, family, size), (key.namespace, family), (key.namespace, size), (key.namespace,))
