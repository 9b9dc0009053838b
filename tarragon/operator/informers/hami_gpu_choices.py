"""Which GPUs of HAMi's nodes new pods get: those that live pods have, and those chosen for pods that do not exist yet.

As kube-scheduler assumes pods that it has just bound, a choice holds from the moment it is made, for a few seconds, and
then for as long as the pod's creation is in flight or the pod is there. The pod carries it in an annotation, so another
operator finds it. All of this happens in one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.client.informer.cache_reader import CacheReader, KeyIndex
from tarragon.job.places import vgpu_of
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import Json, Key
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION
from tarragon.kube.scheduling.hami import gpus_of_pod, hami_gpus
from tarragon.kube.scheduling.node_gpu_sharing import GpuSharing, gpu_sharing
from tarragon.operator.informers.assumed_pods import AssumedPods, JobId
from tarragon.plan.lifecycle.hami_gpus import GpuHolder, choose_gpus, holder_of
from tarragon.plan.objects.placement import assigned_node, assigned_place
from tarragon.plan.objects.vgpus import ChosenGpus, GpuDemand, GpuWait, gpu_demand

ASSUMED_CHOICE_SECONDS = 10.0
"""Seconds for which a choice holds before the pod's creation is requested. It may be made again then."""


@dataclass(slots=True)
class _Choice:
    """The GPUs chosen for a pod that the cache does not show yet."""

    job: JobId
    demand: GpuDemand
    uuids: frozenset[str]
    until: float
    """In the clock's monotonic seconds. It holds on while the pod is assumed."""


class HamiGpuChoices:
    """The choices by node."""

    def __init__(
        self, pods: CacheReader[Pod], nodes: CacheReader[Node], assumed_pods: AssumedPods, clock: Clock
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._assumed_pods = assumed_pods
        self._clock = clock
        self._holders = KeyIndex(pods, _nodes_of_holder)
        self._choices: dict[str, dict[tuple[Key, str], _Choice]] = {}
        """By node, and then by the pod and its place."""
        self._waiting: dict[str, set[JobId]] = {}
        """The jobs that found no GPU on a node, until something changes there."""
        self._handlers: list[Callable[[JobId], None]] = []
        pods.add_event_handler(self._pod_changed)
        nodes.add_event_handler(self._node_changed)

    def on_job_change(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` with each job that waits for a GPU of a node on which something has changed."""
        self._handlers.append(handler)

    def shares_gpus_of(self, node: str) -> bool:
        """Whether HAMi shares the GPUs of the node."""
        found = self._nodes.objects.get(Key("", node))
        return found is not None and gpu_sharing(found) is GpuSharing.HAMI

    def gpus_for(self, job: JobId, demand: GpuDemand) -> ChosenGpus | GpuWait:
        """The GPUs of a new pod of the job. The same demand gets the same answer as long as that is right."""
        node = self._nodes.objects.get(Key("", demand.node))
        if node is None:
            return GpuWait(message=f"node {demand.node} is gone")
        self._forget_expired(demand.node)
        found = choose_gpus(demand, hami_gpus(node), self._holders_on(demand.node))
        if isinstance(found, GpuWait):
            self._waiting.setdefault(demand.node, set()).add(job)
            return found
        self._choices.setdefault(demand.node, {})[demand.pod, demand.place] = _Choice(
            job, demand, frozenset(found.uuids), self._clock.monotonic() + ASSUMED_CHOICE_SECONDS
        )
        return found

    def is_current(self, job: JobId, body: Mapping[str, Json]) -> bool:
        """Whether the pod that is about to be created for the job names the GPUs that it would get now."""
        pod = decode(encode(body), Pod)
        demand = gpu_demand(pod.metadata.key, assigned_place(pod), body["spec"])
        if demand is None:
            return True
        found = self.gpus_for(job, demand)
        named = pod.metadata.annotations.get(GPU_UUID_ANNOTATION, "")
        return isinstance(found, ChosenGpus) and ",".join(found.uuids) == named

    def _holders_on(self, node: str) -> Iterator[GpuHolder]:
        for key in self._holders.keys(node):
            pod = self._pods.objects[key]
            is_foreign = GPU_UUID_ANNOTATION not in pod.metadata.annotations
            place = assigned_place(pod)
            name = str(key) if is_foreign or vgpu_of(place) is None else place
            yield GpuHolder(name, gpus_of_pod(pod.metadata.annotations), is_foreign)
        for choice in self._choices.get(node, {}).values():
            yield GpuHolder(holder_of(choice.demand), choice.uuids)

    def _forget_expired(self, node: str) -> None:
        now, choices = self._clock.monotonic(), self._choices.get(node, {})
        for at in [at for at, choice in choices.items() if choice.until <= now and not self._is_assumed(choice)]:
            del choices[at]

    def _is_assumed(self, choice: _Choice) -> bool:
        return any(
            pod.metadata.key == choice.demand.pod and gpus_of_pod(pod.metadata.annotations) == choice.uuids
            for pod in self._assumed_pods.pods_of(choice.job)
        )

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        nodes = {node for pod in (old, new) if pod is not None for node in _nodes_of_holder(pod)}
        for node in nodes:
            if new is not None:
                # What the pod has is in its annotations from now on.
                for at in [at for at in self._choices.get(node, {}) if at[0] == key and at[1] == assigned_place(new)]:
                    del self._choices[node][at]
            self._changed(node)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if new is None:
            self._choices.pop(key.name, None)
        if _traits(old) != _traits(new):
            self._changed(key.name)

    def _changed(self, node: str) -> None:
        for job in self._waiting.pop(node, ()):
            for handler in self._handlers:
                handler(job)


def _nodes_of_holder(pod: Pod) -> Iterator[str]:
    """The node on which a pod has GPUs; none for one that has finished, and for those whose GPUs nobody knows."""
    if not pod.is_finished and gpus_of_pod(pod.metadata.annotations):
        node = assigned_node(pod.spec)
        if node:
            yield node


def _traits(node: Node | None) -> object:
    return None if node is None else (gpu_sharing(node), hami_gpus(node))
