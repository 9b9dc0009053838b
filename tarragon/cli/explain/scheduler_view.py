"""The cluster as the scheduler sees it, as far as this user may: its own picture, made from what can be listed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from tarragon.base.clock import Clock
from tarragon.base.resources import Resources
from tarragon.cli.jobview.target import Looker
from tarragon.client.errors import ApiError, Conflict, Forbidden, NotFound
from tarragon.client.port import EVERYTHING, Listing, Selection, WatchEvent
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.job.encoding import read_status
from tarragon.kube.core import SERVICES, Node
from tarragon.kube.meta import CustomObject, Key, Resource
from tarragon.operator.informers.informers import World
from tarragon.operator.informers.usage import holds
from tarragon.operator.scheduler.cycle import Admitter, Conduct
from tarragon.plan.nodes.capacity import pod_request
from tarragon.plan.objects.settings import Settings
from tarragon.scheduling.api.decision import Decision
from tarragon.scheduling.api.rules import Rules
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.explain.forecast import Outlook
from tarragon.scheduling.explain.runtime_estimates import Lengths, Life

if TYPE_CHECKING:
    from tarragon.client.port import Cluster

T = TypeVar("T")


NODES, PODS, JOBS = "nodes", "pods", "jobs"
_TOLD = {**{name: name for name in (NODES, PODS)}, FRAMEWORKS[0].resource.full_name: JOBS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """`snapshot` is None where nodes may not be listed: without them nothing can be said of places."""

    snapshot: Snapshot | None
    outlook: Outlook
    unseen: Sequence[str]
    """What this user may not list in all namespaces, of nodes, pods and jobs."""
    nodes: Sequence[Node]
    others: Mapping[str, Sequence[tuple[str, Resources]]]
    """By node, what pods hold there that are of none of the jobs, with their names."""


async def sight(looker: Looker, namespace: str, clock: Clock, rules: Rules) -> Sight:
    still = Still(looker, namespace)
    cluster = cast("Cluster", still)
    world = World(cluster, FRAMEWORKS, clock, Settings(pod_groups={}), random.Random(0))
    seen: list[Snapshot] = []

    def looks(snapshot: Snapshot) -> Sequence[Decision]:
        seen.append(snapshot)
        return ()

    admitter = Admitter(cluster, clock, world, looks, Conduct(rules=lambda: rules))
    tasks = [asyncio.create_task(cache.run()) for cache in world.caches]
    synced = asyncio.create_task(world.synced())
    tasks.append(synced)
    try:
        # The caches of an operator would go on asking for ever; here somebody waits.
        await asyncio.wait({synced, still.failure}, return_when=asyncio.FIRST_COMPLETED)
        if still.failure.done():
            still.failure.result()
        await admitter.round()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Sight(
        snapshot=None if NODES in still.unseen or not seen else seen[0],
        outlook=_outlook(world, clock),
        unseen=sorted(still.unseen),
        nodes=list(world.nodes.objects.values()),
        others=_others(world),
    )


class Still:
    """A Cluster as the operator's own round sees it: everything is listed once, and nothing ever changes.

    What is forbidden is empty, or what is in one namespace. Whatever is written comes too late.
    """

    def __init__(self, looker: Looker, namespace: str) -> None:
        self._looker = looker
        self._namespace = namespace
        self.unseen: set[str] = set()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Of a list that had no answer; only its exception is ever set."""

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING) -> Listing[T]:
        if resource.full_name == SERVICES.full_name:
            return _none()
        try:
            return await self._seen(resource, selection)
        except ApiError as error:
            if not self.failure.done():
                self.failure.set_exception(error)
            raise

    async def _seen(self, resource: Resource[T], selection: Selection) -> Listing[T]:
        try:
            return await self._looker.list(resource, selection)
        except NotFound:
            return _none()
        except Forbidden:
            if resource.full_name in _TOLD:
                self.unseen.add(_TOLD[resource.full_name])
        if resource.namespaced:
            with suppress(Forbidden):
                return await self._looker.list(resource, Selection(namespace=self._namespace))
        return _none()

    async def watch(self, resource: Resource[T], _: Selection, __: str) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", resource.version, None)

    async def patch(self, resource: Resource[T], key: Key, *_: object, **__: object) -> T:
        message = f"{resource.full_name} {key} is only looked at"
        raise Conflict({"status": "Failure", "code": 409, "reason": "Conflict", "message": message})


def _none() -> Listing[T]:
    return Listing([], "1")


def _others(world: World) -> Mapping[str, Sequence[tuple[str, Resources]]]:
    jobs = {found.as_owner for _, found in world.all_jobs()}
    found: dict[str, list[tuple[str, Resources]]] = {}
    for key, pod in sorted(world.pods.objects.items()):
        if holds(pod) and pod.metadata.controlled_by not in jobs:
            found.setdefault(pod.spec.node_name, []).append((f"pod {key}", pod_request(pod.spec)))
    return found


def _outlook(world: World, clock: Clock) -> Outlook:
    """Jobs that a person, or a script, calls alike last about equally long more often than others."""
    lives: list[tuple[float, Life]] = []
    kinds: dict[str, Sequence[Hashable]] = {}
    for framework, found in world.all_jobs():
        mine = kinds[f"{framework.kind} {found.metadata.key}"] = likeness(found)
        status = read_status(found.status)
        admission = status.admission
        begun = (admission.admitted if admission is not None else None) or status.started
        if begun is not None and (status.completed is not None or not status.phase.is_final):
            until = status.completed or clock.now()
            life = Life(seconds=(until - begun).total_seconds(), is_over=status.completed is not None, kinds=mine)
            lives.append((until.timestamp(), life))
    ordered = [life for _, life in sorted(lives, key=lambda each: each[0]) if life.seconds >= 0]
    return Outlook(lengths=Lengths(ordered), kinds=kinds)


def likeness(found: CustomObject) -> Sequence[Hashable]:
    """`train-17` and `train-18-a` of one namespace, with as many replicas; then whatever they are called."""
    key, admission = found.metadata.key, read_status(found.status).admission
    size = tuple(sorted(admission.size.items())) if admission is not None else ()
    family = key.name.rstrip("0123456789").rstrip("-.") if key.name[-1:].isdigit() else key.name.rpartition("-")[0]
    return ((key.namespace, family, size), (key.namespace, family), (key.namespace, size), (key.namespace,))
